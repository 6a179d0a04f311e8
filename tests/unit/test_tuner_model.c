/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/unit_main.h"
#include "tests/unit/xgb_fault.h"
#include "tuner/model_file.h"
#include "tuner/policy_xgboost.h"
#include "tuner/rng.h"
#include "tuner/window_features.h"
#include "tuner/xgb_model.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLS 4
#define ROWS 120

static float x[ROWS][COLS], y[ROWS], difference[ROWS / 2], weight[ROWS / 2];
static const struct xgb_pairs pairs = { ROWS / 2, x[0], difference, weight };

static void fill(void)
{
	struct rng rng = { 11 };

	for (int i = 0; i < ROWS; i++) {
		for (int j = 0; j < COLS; j++)
			x[i][j] = (float)rng_unit(&rng);
		y[i] = x[i][0] > 0.5f ? 1 : -1;
		x[i][3] = NAN;
	}
	for (int i = 0; i < ROWS / 2; i++) {
		difference[i] = y[2 * i + 1] - y[2 * i];
		weight[i] = 1;
	}
}

START_TEST(learns_saves_loads)
{
	struct xgb_model *m, *n;
	float a[ROWS], b[ROWS], mean = 0;
	unsigned wrong = 0;
	void *bytes;
	size_t len;

	fill();
	ck_assert_int_eq(xgb_model_create(&xgb_api_library, COLS, &m), 0);
	ck_assert_int_eq(xgb_model_predict(m, x[0], 1, a), -EAGAIN);
	ck_assert_int_eq(xgb_model_save(m, &bytes, &len), -EAGAIN);
	ck_assert_int_eq(xgb_model_train(m, &pairs, 20, false), 0);
	ck_assert_int_eq(xgb_model_train(m, &pairs, 5, false), 0);
	ck_assert_uint_eq(xgb_model_rounds(m), 25);
	ck_assert_int_eq(xgb_model_predict(m, x[0], ROWS, a), 0);
	for (int i = 0; i < ROWS; i++)
		mean += a[i] / ROWS;
	for (int i = 0; i < ROWS; i++) /* also against rows that were never a pair with it */
		wrong += (a[i] > mean) != (y[i] > 0);
	ck_assert_uint_le(wrong, ROWS / 10);
	ck_assert_int_eq(xgb_model_save(m, &bytes, &len), 0);
	ck_assert_int_eq(xgb_model_create(&xgb_api_library, COLS, &n), 0);
	ck_assert_int_eq(xgb_model_load(n, bytes, len), 0);
	ck_assert_int_eq(xgb_model_predict(n, x[0], ROWS, b), 0);
	for (int i = 0; i < ROWS; i++)
		ck_assert_float_eq(a[i], b[i]);
	ck_assert_int_eq(xgb_model_train(n, &pairs, 2, false), 0);
	ck_assert_uint_eq(xgb_model_rounds(n), 27);
	xgb_model_destroy(n);
	ck_assert_int_eq(xgb_model_create(&xgb_api_library, COLS + 1, &n), 0);
	ck_assert_int_eq(xgb_model_load(n, bytes, len), -EINVAL);
	xgb_model_destroy(n);
	xgb_model_destroy(m);
	free(bytes);
}
END_TEST

/* A pair that is known better counts for more. */
START_TEST(weights_count)
{
	struct xgb_model *m;
	float a[2];

	fill();
	for (int i = 0; i < ROWS / 2; i++) {
		memset(x[2 * i], 0, sizeof(x[0]));
		memset(x[2 * i + 1], 0, sizeof(x[0]));
		x[2 * i + 1][0] = 1;
		difference[i] = i % 2 ? 1 : -1;
		weight[i] = i % 2 ? 4 : 1;
	}
	ck_assert_int_eq(xgb_model_create(&xgb_api_library, COLS, &m), 0);
	ck_assert_int_eq(xgb_model_train(m, &pairs, 40, true), 0);
	ck_assert_int_eq(xgb_model_predict(m, x[0], 2, a), 0);
	ck_assert_float_gt(a[1] - a[0], 0.3f);
	ck_assert_float_lt(a[1] - a[0], 0.9f);
	xgb_model_destroy(m);
}
END_TEST

START_TEST(other_bytes_are_refused)
{
	struct rng rng = { 5 };
	struct xgb_model *m;
	uint8_t bytes[4096];

	ck_assert_int_eq(xgb_model_create(&xgb_api_library, COLS, &m), 0);
	for (int round = 0; round < 40; round++) {
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)rng_next(&rng);
		if (round % 2)
			memcpy(bytes, "{L", 2);
		ck_assert_int_eq(xgb_model_load(m, bytes, rng_below(&rng, sizeof(bytes))), -EINVAL);
	}
	ck_assert_uint_eq(xgb_model_rounds(m), 0);
	xgb_model_destroy(m);
}
END_TEST

/* Every call fails once, in turn: an error or a success, never a leak (ASan) or a crash, and it
 * works after. */
START_TEST(each_call_may_fail)
{
	fill();
	for (unsigned fail_at = 1, reached = 1; reached; fail_at++) {
		struct xgb_model *m;
		unsigned failed = 0;
		float out[2];
		void *bytes;
		size_t len;

		ck_assert_int_eq(xgb_model_create(&xgb_fault_api, COLS, &m), 0);
		xgb_fault_set(fail_at, 1);
		for (int round = 0; round < 3; round++) { /* anew, anew, some rounds more */
			int err = xgb_model_train(m, &pairs, 3, round == 1);

			ck_assert(err == 0 || err == -EIO);
			failed += err != 0;
			err = xgb_model_predict(m, x[0], 2, out);
			ck_assert(err == 0 || err == -EIO || err == -EAGAIN);
			failed += err == -EIO;
			err = xgb_model_save(m, &bytes, &len);
			ck_assert(err == 0 || err == -EIO || err == -EAGAIN);
			failed += err == -EIO;
			if (!err) {
				err = xgb_model_load(m, bytes, len);
				ck_assert(err == 0 || err == -EIO || err == -EINVAL);
				failed += err != 0;
				free(bytes);
			}
		}
		reached = xgb_fault_calls >= fail_at;
		ck_assert_msg(failed == reached, "call %u: %u errors", fail_at, failed);
		xgb_fault_set(0, 0);
		ck_assert_int_eq(xgb_model_train(m, &pairs, 3, false), 0);
		ck_assert_int_eq(xgb_model_predict(m, x[0], 2, out), 0);
		xgb_model_destroy(m);
	}
}
END_TEST

static unsigned trainings_of(struct tuner_policy *p)
{
	unsigned trainings;
	double error, zero_error;

	policy_xgboost_stats(p, &trainings, &error, &zero_error);
	return trainings;
}

/* Steps gain what they always did, then what they gained is lost: all is learnt anew at once. */
START_TEST(a_rising_error_retrains)
{
	struct tuner_sample s = { .from = { { 4, 1, 1, 0 } }, .to = { { 4, 1, 2, 0 } },
				  .error = 0.02f };
	struct tuner_policy *p;
	unsigned before, i;

	for (int f = 0; f < TUNER_FEATURES; f++)
		s.features.v[f] = NAN;
	ck_assert_int_eq(policy_xgboost_create(&xgb_api_library, 1, &p), 0);
	for (i = 0; i < 70; i++) { /* past the first, after each of which it is */
		s.features.v[TUNER_F_RECORD_MEAN] = (float)(100 + i);
		s.gain = 0.1f;
		tuner_policy_xgboost.learn(p, &s);
	}
	before = trainings_of(p);
	for (i = 0; i < 20; i++)
		tuner_policy_xgboost.learn(p, &s);
	ck_assert_uint_eq(trainings_of(p), before);
	s.gain = -0.1f;
	for (i = 0; i < 4; i++)
		tuner_policy_xgboost.learn(p, &s);
	ck_assert_uint_gt(trainings_of(p), before);
	tuner_policy_xgboost.destroy(p);
}
END_TEST

/* Where the next level of a knob was tried and changed nothing, the one behind it is worth a try;
 * where nothing was tried yet, the next level comes first. */
START_TEST(a_plateau_hides_nothing)
{
	struct tuner_settings now = { { 4, 1, 3, 0 } }, next = { { 4, 1, 2, 0 } },
			      behind = { { 4, 1, 1, 0 } };
	struct tuner_features load;
	struct tuner_query q = { .features = &load, .now = now, .n = 3,
				 .candidate = { now, next, behind } };
	struct tuner_proposal r;
	struct tuner_policy *p;

	for (int i = 0; i < TUNER_FEATURES; i++)
		load.v[i] = NAN;
	load.v[TUNER_F_RECORD_MEAN] = 1024;
	load.v[TUNER_F_IN_FLIGHT] = 16;
	ck_assert_int_eq(tuner_policy_xgboost.create(1, &p), 0);
	tuner_policy_xgboost.propose(p, &q, &r);
	ck_assert_int_eq(r.choice, 1);
	tuner_policy_xgboost.learn(p, &(struct tuner_sample){ load, now, next, 0, 0.01f });
	q.n = 2; /* next is banned now */
	q.candidate[1] = behind;
	tuner_policy_xgboost.propose(p, &q, &r);
	ck_assert_int_eq(r.choice, 1);
	tuner_policy_xgboost.destroy(p);
}
END_TEST

START_TEST(file_keeps_and_refuses)
{
	char dir[] = "/tmp/kvfs-test-XXXXXX";
	const struct model_file_kind kind = { 9, 77 }, columns = { 8, 77 }, conditions = { 9, 78 };
	uint8_t bytes[256], *whole;
	const uint8_t *payload;
	const char *why;
	void *got;
	size_t len;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(model_file_load(fd, kind, &got, &len, &why), -ENOENT);
	memset(bytes, 0xA5, sizeof(bytes));
	ck_assert_int_eq(model_file_save(fd, kind, bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(model_file_load(fd, kind, &got, &len, &why), 0);
	ck_assert_uint_eq(len, sizeof(bytes));
	ck_assert_mem_eq(got, bytes, len);
	free(got);
	ck_assert_int_eq(model_file_load(fd, columns, &got, &len, &why), -ESTALE);
	ck_assert_int_eq(model_file_load(fd, conditions, &got, &len, &why), -ESTALE);
	ck_assert_ptr_nonnull(strstr(why, "other options"));
	len = sizeof(bytes) + MODEL_FILE_HEADER_BYTES;
	whole = malloc(len);
	{
		int f = openat(fd, MODEL_FILE_NAME, O_RDONLY);

		ck_assert_int_eq(read(f, whole, len), (ssize_t)len);
		close(f);
	}
	for (size_t i = 0; i < len; i++) { /* each byte counts */
		size_t n;

		whole[i] ^= 0x10;
		ck_assert_int_lt(model_file_decode(whole, len, kind, &payload, &n, &why), 0);
		whole[i] ^= 0x10;
		ck_assert_int_lt(model_file_decode(whole, i, kind, &payload, &n, &why), 0);
	}
	free(whole);
	unlinkat(fd, MODEL_FILE_NAME, 0);
	close(fd);
	rmdir(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner model");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, learns_saves_loads);
	tcase_add_test(t, weights_count);
	tcase_add_test(t, other_bytes_are_refused);
	tcase_add_test(t, each_call_may_fail);
	tcase_add_test(t, a_rising_error_retrains);
	tcase_add_test(t, a_plateau_hides_nothing);
	tcase_add_test(t, file_keeps_and_refuses);
	suite_add_tcase(s, t);
	return unit_run(s);
}
