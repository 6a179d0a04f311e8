/* SPDX-License-Identifier: Apache-2.0 */
/* fsck.kvfs's findings: a line each on stdout, or one JSON object at the end. */
#include "mkfs/fsck_internal.h"

#include "common/diag.h"
#include "common/json_text.h"
#include "common/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void finding_add(struct fsck *f, const char *kind, const struct fsck_place *p,
			const char *text, bool repairable)
{
	json_t *j = json_pack("{s:s, s:o, s:o}", "kind", kind, "file", json_text(p->file), "text",
			      json_text(text));

	if (!j)
		return;
	if (p->offset >= 0)
		json_object_set_new(j, "offset", json_integer(p->offset));
	if (p->lsn)
		json_object_set_new(j, "lsn", json_integer((json_int_t)p->lsn));
	if (p->seg)
		json_object_set_new(j, "segment", json_integer((json_int_t)p->seg));
	if (strcmp(kind, "problem") == 0) {
		json_object_set_new(j, "repairable", json_boolean(repairable));
		json_object_set_new(j, "repaired", json_false());
	}
	json_array_append_new(f->findings, j);
}

static void finding_print(struct fsck *f, const struct fsck_place *p, const char *text,
			  const char *suffix)
{
	if (f->json)
		return;
	progress_end(&f->progress);
	printf("%s", p->file);
	if (p->offset >= 0)
		printf(", offset %" PRId64, p->offset);
	if (p->lsn)
		printf(", LSN %" PRIu64, p->lsn);
	if (p->seg)
		printf(", segment %" PRIu64, p->seg);
	printf(": %s%s\n", text, suffix);
}

bool fsck_problem(struct fsck *f, const struct fsck_place *place, bool repairable, const char *fmt,
		  ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f->left++;
	finding_add(f, "problem", place, text, repairable);
	finding_print(f, place, text, repairable && !f->repair ? " (-y repairs it)" : "");
	return repairable && f->repair;
}

void fsck_repaired(struct fsck *f, int err, const char *what)
{
	json_t *last = json_array_get(f->findings, json_array_size(f->findings) - 1);

	if (err) {
		if (!f->json)
			printf("  not repaired: %s\n", strerror(-err));
		return;
	}
	f->left--;
	f->corrected++;
	json_object_set_new(last, "repaired", json_true());
	json_object_set_new(last, "repair", json_text(what));
	if (!f->json)
		printf("  repaired: %s\n", what);
}

void fsck_note(struct fsck *f, const struct fsck_place *place, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	f->notes++;
	finding_add(f, "note", place, text, false);
	finding_print(f, place, text, " (normal)");
}

void fsck_detail(struct fsck *f, const struct fsck_place *place, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	finding_add(f, "detail", place, text, false);
	finding_print(f, place, text, "");
}

int fsck_fail(struct fsck *f, const char *what, int err)
{
	progress_end(&f->progress);
	diag_error("%s/%s: %s", f->path, what, strerror(-err));
	f->operational = true;
	return err;
}

int fsck_exit_status(const struct fsck *f)
{
	return (f->corrected ? FSCK_CORRECTED : 0) | (f->left ? FSCK_UNCORRECTED : 0) |
	       (f->operational ? FSCK_OPERATIONAL : 0);
}

static json_t *pool_json(const struct fsck_pool *p)
{
	return json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "name", p->name,
			 "readable", p->opened, "generation", (json_int_t)p->generation, "base_lsn",
			 (json_int_t)p->base_lsn, "last_lsn", (json_int_t)p->last_lsn, "epoch",
			 (json_int_t)p->epoch, "records", (json_int_t)p->records, "used_bytes",
			 (json_int_t)p->used_bytes, "torn", p->torn);
}

static json_t *ckpt_json(const struct fsck_ckpt *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "number",
			 (json_int_t)c->info.number, "lsn", (json_int_t)c->info.lsn,
			 "first_segment", (json_int_t)c->info.first_seg, "last_segment",
			 (json_int_t)c->info.last_seg, "bytes", (json_int_t)c->info.bytes, "items",
			 (json_int_t)c->items, "valid", c->valid);
}

static void summary_json(struct fsck *f)
{
	json_t *pools = json_array(), *ckpts = json_array(), *j;
	char uuid[VOLUME_UUID_TEXT_BYTES];

	for (int i = 0; i < OPLOG_POOLS; i++) {
		if (f->pools[i].name)
			json_array_append_new(pools, pool_json(&f->pools[i]));
	}
	for (int i = 0; i < f->ckpt_count; i++)
		json_array_append_new(ckpts, ckpt_json(&f->ckpts[i]));
	j = json_pack("{s:o, s:O, s:i, s:i, s:i, s:o, s:o, s:i}", "volume", json_text(f->path),
		      "findings", f->findings, "corrected", f->corrected, "uncorrected", f->left,
		      "notes", f->notes, "log", pools, "checkpoints", ckpts, "exit_status",
		      fsck_exit_status(f));
	if (!j) {
		fsck_fail(f, "the report", -ENOMEM);
		return;
	}
	if (f->super_valid) {
		json_object_set_new(j, "uuid",
				    json_string(volume_uuid_format(f->super.uuid, uuid)));
		json_object_set_new(j, "label", json_string(f->super.label));
		json_object_set_new(j, "node_id", json_sprintf("%08x", f->super.node_id));
	}
	json_dumpf(j, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(j);
}

void fsck_summary(struct fsck *f)
{
	uint64_t records = 0, bytes = 0;
	char size[UNITS_TEXT_BYTES];

	progress_end(&f->progress);
	if (f->json) {
		summary_json(f);
		return;
	}
	for (int i = 0; i < OPLOG_POOLS; i++)
		records += f->pools[i].records;
	for (int i = 0; i < f->ckpt_count; i++)
		bytes += f->ckpts[i].info.bytes;
	printf("%s: %" PRIu64 " log records, %d checkpoint(s) of %s: ", f->path, records,
	       f->ckpt_count, units_format_size(bytes, size));
	if (f->corrected == 0 && f->left == 0)
		printf("%s\n", f->operational ? "not fully checked" : "clean");
	else
		printf("%u problem(s) corrected, %u left\n", f->corrected, f->left);
}
