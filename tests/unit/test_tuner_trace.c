/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner/trace.h"

#include "tests/unit/unit_main.h"
#include "tuner/explain.h"
#include "tuner/policy_replay.h"
#include "tuner/sim_work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS 350

static char *text;
static size_t text_len;

/* Records a run of the policy into `text`. */
static void record(const struct tuner_policy_ops *policy)
{
	struct tuner_settings s = tuner_settings_shipped;
	FILE *out = open_memstream(&text, &text_len);
	struct tuner_config config;
	struct sim_trace *trace;
	struct tuner_decision d;
	struct tuner_window w;
	struct tuner *t;

	tuner_config_init(&config);
	config.policy = policy;
	config.seed = 4;
	ck_assert_int_eq(sim_trace_create(SIM_TENANTS, 2, false, &trace), 0);
	ck_assert_int_eq(tuner_create(&config, &t), 0);
	ck_assert_int_eq(tuner_trace_begin(out, &config, NULL, 0), 0);
	for (unsigned i = 0; i < WINDOWS; i++) {
		sim_trace_window(trace, i, s, &w);
		w.features.v[TUNER_F_MEM_SHARE] = NAN;
		s = tuner_step(t, &w, &d);
		ck_assert_int_eq(tuner_trace_add(out, &w, &d), 0);
	}
	fclose(out);
	tuner_destroy(t);
	sim_trace_destroy(trace);
}

static unsigned seen;

static void count(void *ctx, const struct tuner_decision *d)
{
	seen++;
}

START_TEST(decisions_come_out_of_the_trace)
{
	static const struct tuner_policy_ops *const policies[] = {
		&tuner_policy_bandit,
		&tuner_policy_xgboost,
		&tuner_policy_qlearning,
		&tuner_policy_static,
	};

	for (int p = 0; p < 4; p++) {
		uint64_t window = 0;
		FILE *in;

		record(policies[p]);
		in = fmemopen(text, text_len, "r");
		seen = 0;
		ck_assert_int_eq(tuner_trace_replay(in, count, NULL, &window), 0);
		ck_assert_uint_eq(seen, WINDOWS);
		fclose(in);
		free(text);
	}
}
END_TEST

START_TEST(a_changed_trace_is_noticed)
{
	uint64_t window = 0;
	FILE *in;
	char *at;

	record(&tuner_policy_bandit);
	at = strstr(text, "\"action\":\"try\"");
	ck_assert_ptr_nonnull(at);
	memcpy(at, "\"action\":\"rec\"", 14);
	in = fmemopen(text, text_len, "r");
	ck_assert_int_eq(tuner_trace_replay(in, NULL, NULL, &window), -EINVAL);
	fclose(in);
	memcpy(at, "\"action\":\"try\"", 14);
	at = strstr(text, "\"ops_per_s\":");
	ck_assert_ptr_nonnull(at);
	at = strstr(text, "\"seen\":");
	at = strstr(at, "\"ops_per_s\":");
	memcpy(at, "\"ops_per_x\":", 12); /* the feature is missing now */
	in = fmemopen(text, text_len, "r");
	ck_assert_int_eq(tuner_trace_replay(in, NULL, NULL, &window), -EILSEQ);
	fclose(in);
	free(text);
}
END_TEST

static struct tuner_recorded recorded[WINDOWS];

static int replay_create(uint64_t seed, struct tuner_policy **ret_policy)
{
	return policy_replay_create(recorded, WINDOWS, ret_policy);
}

/* Without the model: the recorded proposals alone lead to the same decisions. */
START_TEST(replay_policy_repeats_without_the_model)
{
	struct tuner_policy_ops ops = tuner_policy_replay;
	struct tuner_config config;
	struct tuner *t;
	void *model;
	size_t len;
	FILE *in;

	record(&tuner_policy_xgboost);
	in = fmemopen(text, text_len, "r");
	ck_assert_int_eq(tuner_trace_read_head(in, &config, &model, &len), 0);
	ck_assert_ptr_null(model);
	for (unsigned i = 0; i < WINDOWS; i++)
		ck_assert_int_eq(tuner_trace_read(in, &recorded[i]), 0);
	ck_assert_int_eq(tuner_trace_read(in, &recorded[0]), -ENODATA);
	fclose(in);
	free(text);
	ops.create = replay_create;
	config.policy = &ops;
	ck_assert_int_eq(tuner_create(&config, &t), 0);
	for (unsigned i = 0; i < WINDOWS; i++) {
		struct tuner_decision d;
		struct tuner_settings s = tuner_step(t, &recorded[i].window, &d);

		ck_assert_int_eq(d.action, recorded[i].action);
		ck_assert(tuner_settings_equal(s, recorded[i].after));
	}
	tuner_destroy(t);
}
END_TEST

#define TEXT_OF(macro) TEXT_OF_(macro)
#define TEXT_OF_(value) #value
#define HEAD "{\"kvfs_tuner_trace\":" TEXT_OF(TUNER_SCHEMA)

START_TEST(trace_of_another_schema)
{
	uint64_t window;
	FILE *in = tmpfile();

	fputs("{\"kvfs_tuner_trace\":1,\"policy\":\"static\"}\n", in);
	rewind(in);
	ck_assert_int_eq(tuner_trace_replay(in, NULL, NULL, &window), -ESTALE);
	fclose(in);
}
END_TEST

START_TEST(not_a_trace)
{
	static const char *const heads[] = {
		"", "\n", "{}\n", "[]\n", HEAD "}\n", "garbage\n",
		HEAD ",\"policy\":\"none\",\"shipped\":{}}\n",
		HEAD ",\"policy\":\"static\",\"shipped\":{\"lanes\":3}}\n",
	};

	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		uint64_t window;
		FILE *in = tmpfile();

		fputs(heads[i], in);
		rewind(in);
		ck_assert_int_eq(tuner_trace_replay(in, NULL, NULL, &window), -EINVAL);
		fclose(in);
	}
}
END_TEST

struct endless {
	const char *begin;
	char fill;
	size_t given; /* bytes */
};

static ssize_t endless_read(void *cookie, char *buf, size_t len)
{
	struct endless *e = cookie;
	size_t n = strlen(e->begin);

	for (size_t i = 0; i < len; i++, e->given++)
		buf[i] = e->given < n ? e->begin[e->given] : e->fill;
	return (ssize_t)len;
}

/* A file without an end is given up: a wrong one at its first bytes, a line at its limit. */
START_TEST(endless_files)
{
	static const char shipped[] = HEAD ",\"policy\":\"static\",\"shipped\":{\"lanes\":20,"
		"\"poll_us\":50,\"batch\":4,\"reserve_mib\":64}}\n{";
	static const struct {
		struct endless file;
		size_t most;
	} cases[] = {
		{ { "", 0, 0 }, 1 << 16 },
		{ { "{\"", ' ', 0 }, 1 << 16 },
		{ { HEAD, ' ', 0 }, 40 << 20 },
		{ { shipped, ' ', 0 }, 2 << 20 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		static const cookie_io_functions_t io = { .read = endless_read };
		struct endless e = cases[i].file;
		FILE *in = fopencookie(&e, "r", io);
		uint64_t window;

		ck_assert_ptr_nonnull(in);
		ck_assert_int_eq(tuner_trace_replay(in, NULL, NULL, &window), -EINVAL);
		ck_assert_uint_le(e.given, cases[i].most);
		fclose(in);
	}
}
END_TEST

START_TEST(log_keeps_the_last)
{
	static struct decision_log log;
	struct tuner_decision d = { .why = "", .features.v = { NAN } };
	json_t *j;

	ck_assert_ptr_null(decision_log_get(&log, 0));
	for (unsigned i = 0; i < 300; i++) {
		d.window = i;
		decision_log_add(&log, &d);
	}
	ck_assert_uint_eq(decision_log_get(&log, 0)->window, 299);
	ck_assert_uint_eq(decision_log_get(&log, DECISION_LOG_MAX - 1)->window,
			  300 - DECISION_LOG_MAX);
	ck_assert_ptr_null(decision_log_get(&log, DECISION_LOG_MAX));
	j = tuner_explain_decision(decision_log_get(&log, 0));
	ck_assert(json_is_null(json_object_get(json_object_get(j, "features"), "rtt_p50_us")));
	json_decref(j);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner trace");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, decisions_come_out_of_the_trace);
	tcase_add_test(t, a_changed_trace_is_noticed);
	tcase_add_test(t, replay_policy_repeats_without_the_model);
	tcase_add_test(t, not_a_trace);
	tcase_add_test(t, trace_of_another_schema);
	tcase_add_test(t, endless_files);
	tcase_add_test(t, log_keeps_the_last);
	suite_add_tcase(s, t);
	return unit_run(s);
}
