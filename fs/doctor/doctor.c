/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs doctor: the list of findings, and how it is shown. The checks are in doctor_*.c: see
 * doctor.h. */
#include "fs/doctor/doctor_internal.h"

#include "common/json_text.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void (*const doctor_checks[])(struct doctor *d) = {
	doctor_check_kernel, doctor_check_fuse, doctor_check_rdma, doctor_check_verbs,
	doctor_check_memory, doctor_check_numa, doctor_check_pmem, doctor_check_cpu,
	doctor_check_irq, doctor_check_clock,
};

static struct doctor_finding *finding_add(struct doctor *d)
{
	struct doctor_finding *grown;

	if (d->count == d->capacity) {
		grown = realloc(d->findings, (d->capacity + 32) * sizeof(*grown));
		if (!grown) {
			d->out_of_memory = true;
			return NULL;
		}
		d->findings = grown;
		d->capacity += 32;
	}
	return &d->findings[d->count++];
}

void doctor_say(struct doctor *d, const char *check, enum doctor_status status, const char *remedy,
		const char *fmt, ...)
{
	struct doctor_finding *f = finding_add(d);
	va_list ap;

	if (!f)
		return;
	f->status = status;
	snprintf(f->check, sizeof(f->check), "%s", check);
	snprintf(f->remedy, sizeof(f->remedy), "%s", remedy);
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
}

int doctor_run(struct doctor *d, const char *root)
{
	*d = (struct doctor){ .root = strcmp(root, "/") == 0 ? "" : root };
	d->live = d->root[0] == '\0';
	for (size_t i = 0; i < sizeof(doctor_checks) / sizeof(doctor_checks[0]); i++)
		doctor_checks[i](d);
	return d->out_of_memory ? -ENOMEM : 0;
}

void doctor_free(struct doctor *d)
{
	free(d->findings);
	*d = (struct doctor){ .root = "" };
}

const char *doctor_status_name(enum doctor_status s)
{
	static const char *const names[] = { "ok", "warn", "fail", "n/a" };

	return names[s];
}

enum doctor_status doctor_worst(const struct doctor *d)
{
	enum doctor_status worst = DOCTOR_OK;

	for (size_t i = 0; i < d->count; i++) {
		if (d->findings[i].status != DOCTOR_NA && d->findings[i].status > worst)
			worst = d->findings[i].status;
	}
	return worst;
}

static size_t count_of(const struct doctor *d, enum doctor_status s)
{
	size_t n = 0;

	for (size_t i = 0; i < d->count; i++)
		n += d->findings[i].status == s;
	return n;
}

void doctor_print(const struct doctor *d, FILE *out)
{
	for (size_t i = 0; i < d->count; i++) {
		const struct doctor_finding *f = &d->findings[i];

		fprintf(out, "%-4s  %-18s  %s\n", doctor_status_name(f->status), f->check, f->text);
		if (f->remedy[0])
			fprintf(out, "%26s-> %s\n", "", f->remedy);
	}
	fprintf(out, "%zu ok, %zu to improve, %zu failed, %zu not applicable\n", count_of(d,
		DOCTOR_OK),
		count_of(d, DOCTOR_WARN), count_of(d, DOCTOR_FAIL), count_of(d, DOCTOR_NA));
}

static int json_add(json_t *list, const struct doctor_finding *f)
{
	json_t *j = json_pack("{s:s, s:s, s:o}", "check", f->check, "status",
			      doctor_status_name(f->status), "text", json_text(f->text));

	if (j && f->remedy[0])
		json_object_set_new(j, "remedy", json_text(f->remedy));
	return j ? json_array_append_new(list, j) : -1;
}

int doctor_print_json(const struct doctor *d, FILE *out)
{
	json_t *list = json_array(), *j;
	int err = 0;

	for (size_t i = 0; i < d->count && list && !err; i++)
		err = json_add(list, &d->findings[i]);
	if (!list || err) {
		json_decref(list);
		return -ENOMEM;
	}
	j = json_pack("{s:s, s:o}", "worst", doctor_status_name(doctor_worst(d)), "checks", list);
	if (!j)
		return -ENOMEM;
	if (json_dumpf(j, out, JSON_INDENT(2)) != 0 || fputc('\n', out) == EOF)
		err = -EIO;
	json_decref(j);
	return err;
}
