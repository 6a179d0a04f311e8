/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_SAMPLES_H
#define KVFS_TUNER_SAMPLES_H
/*
 * The trials a model learns from: a sliding window of them, how much it says of each step, and its
 * form in a volume's model file. Owned by one thread; no call waits.
 */
#include "tuner/context.h"
#include "tuner/policy.h"

#define SAMPLES_MAX 512

struct samples {
	struct tuner_sample all[SAMPLES_MAX];
	struct context_key key[SAMPLES_MAX]; /* of all[i].features */
	unsigned next, n;
};

/* Takes the place of the oldest. Gains and losses beyond what teaches more are cut. */
void samples_add(struct samples *s, const struct tuner_sample *sample);

/* What is known of each step from a level of a knob to the next one, in a load: 1 / variance of
 * its gain, as far as windows' noise goes, and how far off it may be besides, since the nearest
 * trial was in another load or at other settings; infinite: no trial. */
struct known_steps {
	double of[TUNER_KNOBS][TUNER_LEVELS_MAX];
	double off[TUNER_KNOBS][TUNER_LEVELS_MAX];
};
void samples_known(const struct samples *s, const struct tuner_features *load,
		   struct tuner_settings at, struct known_steps *ret_known);

/* Network byte order: number (4), then each: features (4 each), levels from and to (1 each), gain
 * (4), error (4); floats as IEEE 754 bits. */
#define SAMPLES_ONE_BYTES (4U * TUNER_FEATURES + 2U * TUNER_KNOBS + 8U)
#define SAMPLES_BYTES_MAX (4U + SAMPLES_MAX * SAMPLES_ONE_BYTES)
/* Returns the length. */
size_t samples_encode(const struct samples *s, uint8_t *out);
/* -EINVAL: not samples, or not all of len bytes are; s is then unchanged. */
int samples_decode(struct samples *s, const uint8_t *bytes, size_t len);

#endif
