/* SPDX-License-Identifier: Apache-2.0 */
/* What kvfs doctor makes of a device's operations; the rest is in tests/shell/doctor_*.sh. */
#include "fs/doctor/doctor_internal.h"

#include "replication/transport/transport_verbs.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <string.h>

static const struct doctor_verbs good = {
	.device = "mlx5_0", .rc = true, .uc = true, .write_imm_inline = true, .odp = true,
	.max_qp = 131072, .max_qp_wr = 32768, .max_cqe = 4194303, .max_mr = 16777216,
	.max_mr_bytes = 1ULL << 40,
};

static void judged(const struct doctor_verbs *v, enum doctor_status want, const char *text,
		   const char *remedy)
{
	struct doctor d = { .root = "" };

	doctor_verbs_judge(&d, v);
	ck_assert_uint_ge(d.count, 1);
	ck_assert_str_eq(d.findings[0].check, "rdma.operations");
	ck_assert_int_eq(d.findings[0].status, want);
	ck_assert_msg(strstr(d.findings[0].text, text), "%s", d.findings[0].text);
	ck_assert_msg(strstr(d.findings[0].remedy, remedy), "%s", d.findings[0].remedy);
	ck_assert_int_eq(doctor_worst(&d), want);
	doctor_free(&d);
}

START_TEST(a_device_that_can_do_all)
{
	judged(&good, DOCTOR_OK, "RC, UC, inline", "");
}
END_TEST

START_TEST(a_device_without_operations)
{
	struct doctor_verbs v = good;

	v.rc = false;
	judged(&v, DOCTOR_FAIL, "no reliable connection", "transport=tcp");
	v = good;
	v.register_error = -ENOMEM;
	judged(&v, DOCTOR_FAIL, "can't be registered", "LimitMEMLOCK");
	v = good;
	v.max_qp = 16;
	judged(&v, DOCTOR_WARN, "16 queue pairs", "lanes=");
	/* no more than "invalid argument" would be said when a lane is made */
	v = good;
	v.max_qp_wr = VERBS_LANE_SEND_WRS - 1;
	judged(&v, DOCTOR_FAIL, "2047 requests a queue pair", "transport=tcp");
	v.max_qp_wr++;
	v.max_cqe = VERBS_LANE_CQES - 1;
	judged(&v, DOCTOR_FAIL, "3111 entries a completion queue", "transport=tcp");
	v.max_cqe++;
	judged(&v, DOCTOR_OK, "2048 requests", "");
	v = good;
	v.uc = false;
	judged(&v, DOCTOR_OK, "no UC", "");
	v = (struct doctor_verbs){ .device = "mlx5_0", .open_error = -EACCES };
	judged(&v, DOCTOR_FAIL, "can't be opened", "run as root");
	v.open_error = -ENODEV;
	judged(&v, DOCTOR_FAIL, "can't be opened", "ibverbs-providers");
}
END_TEST

START_TEST(dmabuf_is_told)
{
	struct doctor d = { .root = "" };
	struct doctor_verbs v = good;

	doctor_verbs_judge(&d, &v);
	v.dmabuf_error = -EOPNOTSUPP;
	doctor_verbs_judge(&d, &v);
	ck_assert_uint_eq(d.count, 4);
	ck_assert_int_eq(d.findings[1].status, DOCTOR_OK);
	ck_assert_int_eq(d.findings[3].status, DOCTOR_NA);
	ck_assert_ptr_nonnull(strstr(d.findings[3].remedy, "host memory"));
	doctor_free(&d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("doctor");
	TCase *t = tcase_create("verbs");

	tcase_add_test(t, a_device_that_can_do_all);
	tcase_add_test(t, a_device_without_operations);
	tcase_add_test(t, dmabuf_is_told);
	suite_add_tcase(s, t);
	return unit_run(s);
}
