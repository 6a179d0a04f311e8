/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of kvfs top, from two replies that are written here. On a mount: tests/shell/top.sh. */
#include "fs/cmd/top.h"

#include "tests/unit/unit_main.h"

static json_t *latency(const char *mirror, const char *transport, int count, int bound)
{
	return json_pack("{s:s, s:[s, s], s:i, s:i, s:[[i, i]]}", "name", "rdma_write_latency",
			 "values", mirror, transport, "count", count, "sum", count * bound,
			 "buckets", bound, count);
}

static json_t *live(const char *mirror)
{
	return json_pack("{s:s, s:[s], s:i}", "name", "kvfs_mirror_live", "values", mirror, "value",
			 1);
}

static json_t *reply(json_int_t time_ns, int verbs, int tcp)
{
	json_t *build = json_pack("{s:s, s:[s, s], s:i}", "name", "kvfs_build_info", "values", "1",
				  "primary", "value", 1);
	json_t *metrics = json_pack("[o, o, o, o]", build, live("a"), live("b"),
				    latency("a", "verbs", verbs, 2000));

	if (tcp >= 0)
		json_array_append_new(metrics, latency("a", "tcp", tcp, 50000));
	json_array_append_new(metrics, latency("b", "shm", 7, 1000));
	return json_pack("{s:I, s:o}", "time_ns", time_ns, "metrics", metrics);
}

static double of_mirror(const json_t *frame, size_t i, const char *what)
{
	json_t *m = json_array_get(json_object_get(frame, "mirrors"), i);

	return json_number_value(json_object_get(json_object_get(m, "latency"), what));
}

/* A mirror that was reached over verbs and is over tcp now: the series that grows is shown. */
START_TEST(latency_follows_the_transport)
{
	json_t *before = reply(1000000000, 100, -1), *after = reply(3000000000, 100, 40), *frame;

	frame = top_frame(before, after);
	ck_assert_ptr_nonnull(frame);
	ck_assert_uint_eq(json_array_size(json_object_get(frame, "mirrors")), 2);
	ck_assert_double_eq(of_mirror(frame, 0, "per_second"), 20);
	ck_assert_double_eq(of_mirror(frame, 0, "p99_us"), 50);
	ck_assert_double_eq(of_mirror(frame, 1, "per_second"), 0); /* the other's is its own */
	json_decref(frame);
	json_decref(before);
	before = reply(2000000000, 100, 40);
	json_decref(after);
	after = reply(3000000000, 150, 40); /* and back */
	frame = top_frame(before, after);
	ck_assert_double_eq(of_mirror(frame, 0, "per_second"), 50);
	ck_assert_double_eq(of_mirror(frame, 0, "p99_us"), 2);
	json_decref(frame);
	json_decref(before);
	json_decref(after);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("top");
	TCase *t = tcase_create("all");

	tcase_add_test(t, latency_follows_the_transport);
	suite_add_tcase(s, t);
	return unit_run(s);
}
