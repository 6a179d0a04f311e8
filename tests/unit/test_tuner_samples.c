/* SPDX-License-Identifier: Apache-2.0 */
/* The window of trials, and what a load's key says of having moved. */
#include "tuner/samples.h"

#include "tests/unit/unit_main.h"
#include "tuner/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct samples samples, read_back;
static uint8_t bytes[SAMPLES_BYTES_MAX];

static struct tuner_features load_of(float bytes_mean, float in_flight)
{
	struct tuner_features f;

	for (int i = 0; i < TUNER_FEATURES; i++)
		f.v[i] = NAN;
	f.v[TUNER_F_RECORD_MEAN] = bytes_mean;
	f.v[TUNER_F_RECORD_P90] = 2 * bytes_mean;
	f.v[TUNER_F_IN_FLIGHT] = in_flight;
	f.v[TUNER_F_LINK_OTHER] = f.v[TUNER_F_CPU_OTHER] = 0;
	f.v[TUNER_F_CPUS] = 8;
	return f;
}

static void add(unsigned n)
{
	memset(&samples, 0, sizeof(samples));
	for (unsigned i = 0; i < n; i++) {
		struct tuner_sample s = {
			load_of(100 + (float)i, 10), { { 4, 1, 1, 0 } }, { { 4, 1, 2, 0 } },
			0.01f * (float)(i % 7), 0.02f,
		};

		samples_add(&samples, &s);
	}
}

START_TEST(come_back_from_bytes)
{
	static const unsigned counts[] = { 0, 1, SAMPLES_MAX, SAMPLES_MAX + 9 };

	for (unsigned c = 0; c < 4; c++) {
		size_t len, again;
		uint8_t *copy;

		add(counts[c]);
		len = samples_encode(&samples, bytes);
		ck_assert_uint_le(len, sizeof(bytes));
		copy = malloc(len);
		memcpy(copy, bytes, len);
		ck_assert_int_eq(samples_decode(&read_back, copy, len), 0);
		ck_assert_uint_eq(read_back.n, samples.n);
		again = samples_encode(&read_back, bytes);
		ck_assert_uint_eq(again, len);
		ck_assert_mem_eq(bytes, copy, len);
		ck_assert_int_eq(samples_decode(&read_back, copy, len - 1), -EINVAL);
		free(copy);
	}
}
END_TEST

START_TEST(other_bytes_are_refused)
{
	struct rng rng = { 8 };
	size_t len;

	add(1);
	len = samples_encode(&samples, bytes);
	read_back.n = 77;
	bytes[4 + 4 * TUNER_FEATURES] = 200; /* a level that no knob has */
	ck_assert_int_eq(samples_decode(&read_back, bytes, len), -EINVAL);
	for (int round = 0; round < 200; round++) {
		for (size_t i = 4; i < len; i++)
			bytes[i] = (uint8_t)rng_next(&rng);
		ck_assert_int_eq(samples_decode(&read_back, bytes, len), -EINVAL);
	}
	ck_assert_uint_eq(read_back.n, 77);
}
END_TEST

START_TEST(extremes_are_cut)
{
	struct tuner_sample s = { load_of(100, 10), { { 4, 1, 1, 0 } }, { { 4, 0, 1, 0 } }, -2,
				  0.02f };

	add(0);
	samples_add(&samples, &s);
	ck_assert_float_gt(samples.all[0].gain, -0.5f);
}
END_TEST

/* A trial says most of its own step in its own load, less of it in others, nothing of other
 * steps. */
START_TEST(what_is_known_fades_with_distance)
{
	struct tuner_settings at = { { 4, 1, 1, 0 } }, elsewhere = { { 4, 2, 1, 3 } };
	struct tuner_features same = load_of(100, 10), other = load_of(400, 10);
	struct known_steps here, far, moved;

	add(1);
	samples_known(&samples, &same, at, &here);
	samples_known(&samples, &other, at, &far);
	samples_known(&samples, &same, elsewhere, &moved);
	ck_assert_double_eq_tol(here.of[TUNER_KNOB_BATCH][1], 1 / (0.02 * 0.02), 1);
	ck_assert_double_lt(far.of[TUNER_KNOB_BATCH][1], here.of[TUNER_KNOB_BATCH][1] / 2);
	ck_assert_double_lt(moved.of[TUNER_KNOB_BATCH][1], here.of[TUNER_KNOB_BATCH][1] / 2);
	ck_assert_double_gt(far.of[TUNER_KNOB_BATCH][1], 0);
	ck_assert_double_eq(here.of[TUNER_KNOB_BATCH][0], 0);
	ck_assert_double_eq(here.of[TUNER_KNOB_LANES][3], 0);
}
END_TEST

/* Six of eight processors are left, or two and then one: the last is farther. */
START_TEST(spinning_hangs_on_what_is_left)
{
	struct tuner_settings at = { { 4, 1, 1, 0 } }, sleeps = { { 4, 0, 1, 0 } };
	struct tuner_sample t = { load_of(1024, 16), at, sleeps, 0, 0.02f };
	struct known_steps plenty, scarce;
	struct tuner_features load;

	memset(&samples, 0, sizeof(samples));
	t.features.v[TUNER_F_CPU_OTHER] = 1;
	samples_add(&samples, &t);
	load = t.features;
	load.v[TUNER_F_CPU_OTHER] = 2;
	samples_known(&samples, &load, at, &plenty);
	memset(&samples, 0, sizeof(samples));
	t.features.v[TUNER_F_CPU_OTHER] = 6;
	samples_add(&samples, &t);
	load.v[TUNER_F_CPU_OTHER] = 7;
	samples_known(&samples, &load, at, &scarce);
	ck_assert_double_gt(scarce.off[TUNER_KNOB_POLL][0], 2 * plenty.off[TUNER_KNOB_POLL][0]);
	/* Unknown is no difference. */
	load.v[TUNER_F_CPU_OTHER] = NAN;
	samples_known(&samples, &load, at, &scarce);
	ck_assert_double_eq(scarce.off[TUNER_KNOB_POLL][0], 0);
}
END_TEST

/* Noise of other programs' CPU is no move of the load; twice the clients is, noisy or not. */
START_TEST(noise_is_no_move)
{
	struct key_mean base = { .n = 0 }, trial;
	struct key_noise noise = { .known = false };
	struct rng rng = { 3 };
	struct context_key key;
	unsigned moves = 0;

	for (int i = 0; i < 400; i++) {
		struct tuner_features f = load_of(1000, 32);

		f.v[TUNER_F_CPU_OTHER] = 6.5f + 0.25f * (float)rng_normal(&rng);
		context_key_of(&f, (struct tuner_settings){ { 4, 1, 1, 0 } }, &key);
		key_noise_add(&noise, &key);
		trial = (struct key_mean){ key, 1 };
		moves += i > 50 && context_moved(&base, &trial, &noise);
		key_mean_add(&base, &key, 8);
	}
	ck_assert_uint_lt(moves, 10);
	key.v[CONTEXT_IN_FLIGHT] += 1 / 0.6f;
	trial = (struct key_mean){ key, 1 };
	ck_assert(context_moved(&base, &trial, &noise));
}
END_TEST

static struct context_key key_of(struct tuner_settings s, float ops, float own, float other)
{
	struct tuner_features f = load_of(1000, 32);
	struct context_key key;

	f.v[TUNER_F_CPUS] = 4;
	f.v[TUNER_F_OPS_PER_S] = ops;
	f.v[TUNER_F_CPU_OWN] = own;
	f.v[TUNER_F_CPU_OTHER] = other;
	context_key_of(&f, s, &key);
	return key;
}

/* Clients' CPU that follows a step's throughput, or gives way to our spinning, is the same load;
 * what the step can't explain is another, as is anything under the same settings. */
START_TEST(others_may_follow)
{
	static const struct tuner_settings at = { { 4, 1, 1, 0 } }, to = { { 4, 1, 2, 0 } };
	struct context_key base = key_of(at, 10000, 0.5f, 2);
	struct context_key crowded = key_of(at, 10000, 1.5f, 2.4f);
	struct context_key follows = key_of(to, 14000, 0.7f, 2.8f), gone = key_of(to, 14000, 1, 0);
	struct context_key pressed = key_of(to, 11000, 3.2f, 0.7f);
	struct context_key came = key_of(to, 9000, 0.5f, 5.5f);
	struct context_key same = key_of(at, 10000, 0.5f, 2.8f);

	ck_assert_double_eq(context_distance(&base, &follows), 0);
	ck_assert_double_eq(context_distance(&follows, &base), 0);
	ck_assert_double_eq(context_distance(&crowded, &pressed), 0);
	ck_assert_double_eq(context_distance(&pressed, &crowded), 0);
	ck_assert_double_ge(context_distance(&base, &gone), 1);
	ck_assert_double_ge(context_distance(&base, &came), 1);
	ck_assert_double_ge(context_distance(&base, &same), 1);
	follows.v[CONTEXT_CPU_OTHER] = NAN;
	ck_assert_double_eq(context_distance(&base, &follows), 0);
}
END_TEST

/* Another number of mirrors, or one over another transport: another load, and what was learnt says
 * nothing of it. */
START_TEST(mirrors_are_part_of_a_load)
{
	static const struct tuner_settings at = { { 4, 1, 1, 0 } };
	struct tuner_features f = load_of(100, 10);
	struct context_key one, two, tcp;
	struct known_steps known;

	f.v[TUNER_F_TRANSPORTS] = TUNER_OVER_VERBS;
	context_key_of(&f, at, &one);
	f.v[TUNER_F_TRANSPORTS] = 2 * TUNER_OVER_VERBS;
	context_key_of(&f, at, &two);
	f.v[TUNER_F_TRANSPORTS] = TUNER_OVER_TCP;
	context_key_of(&f, at, &tcp);
	ck_assert_double_eq(context_distance(&one, &one), 0);
	ck_assert_double_ge(context_distance(&one, &two), 1);
	ck_assert_double_ge(context_distance(&one, &tcp), 1);
	add(1);
	samples.key[0] = one;
	samples_known(&samples, &f, at, &known);
	ck_assert_double_gt(known.off[TUNER_KNOB_BATCH][1], 0.1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner samples");
	TCase *t = tcase_create("all");

	tcase_add_test(t, come_back_from_bytes);
	tcase_add_test(t, other_bytes_are_refused);
	tcase_add_test(t, extremes_are_cut);
	tcase_add_test(t, what_is_known_fades_with_distance);
	tcase_add_test(t, spinning_hangs_on_what_is_left);
	tcase_add_test(t, noise_is_no_move);
	tcase_add_test(t, others_may_follow);
	tcase_add_test(t, mirrors_are_part_of_a_load);
	suite_add_tcase(s, t);
	return unit_run(s);
}
