/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_SETTINGS_H
#define KVFS_TUNER_SETTINGS_H
/*
 * What the tuner moves: four knobs, each on a short ladder of values; settings are a level of each
 * ladder, so that "one step" is plus or minus one and all four fit one atomic word. What a device,
 * a peer or a limit allows comes from outside as bounds; nothing outside them ever leaves the
 * tuner. Pure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tuner_knob {
	TUNER_KNOB_LANES, /* active lanes to each mirror */
	/* us a poll spins before it sleeps: sleep, adaptive, spin. More levels would be a plateau
	 * that single steps don't cross: above the gap between completions all are alike. */
	TUNER_KNOB_POLL,
	TUNER_KNOB_BATCH,   /* records that share an append and a doorbell, at most */
	TUNER_KNOB_RESERVE, /* MiB kept registered ahead */
	TUNER_KNOBS
};

#define TUNER_LEVELS_MAX 7

struct tuner_settings {
	uint8_t level[TUNER_KNOBS];
};

/* Levels a knob may take, both ends included; lo == hi: this transport hasn't the knob, or may
 * not move it. */
struct tuner_bounds {
	uint8_t lo[TUNER_KNOBS], hi[TUNER_KNOBS];
};

/* What a mount over RDMA runs with untuned (its options' defaults: a test compares the two), which
 * policies are judged against. Lanes: the fewest within 1 % of the best over the mix that
 * tests/tuner_judge --default sweeps, with the batches of a mount. Any mount's own static settings
 * are its options (node_tuner_static). */
extern const struct tuner_settings tuner_settings_shipped;

const char *tuner_knob_name(enum tuner_knob knob);
unsigned tuner_knob_levels(enum tuner_knob knob);
uint32_t tuner_knob_value(enum tuner_knob knob, unsigned level);

/* The highest level whose value is at most value; 0 if there is none. */
uint8_t tuner_knob_level(enum tuner_knob knob, uint32_t value);

/* The whole ladders. */
void tuner_bounds_all(struct tuner_bounds *ret_bounds);
/* Those of tuner_settings_shipped's mount, with an arena that holds the largest reserve. */
void tuner_bounds_shipped(struct tuner_bounds *ret_bounds);
/* Intersects with whole ladders and puts crossed ends right: always valid afterwards. */
void tuner_bounds_sane(struct tuner_bounds *bounds);

bool tuner_settings_allowed(const struct tuner_settings *s, const struct tuner_bounds *b);
struct tuner_settings tuner_settings_clamp(struct tuner_settings s, const struct tuner_bounds *b);
bool tuner_settings_equal(struct tuner_settings a, struct tuner_settings b);

/* One knob one step: of the 2 * TUNER_KNOBS moves, move 2k raises knob k and 2k + 1 lowers it.
 * False where that leaves the bounds. */
#define TUNER_MOVES (2 * TUNER_KNOBS)
bool tuner_settings_move(struct tuner_settings from, unsigned move, const struct tuner_bounds *b,
			 struct tuner_settings *ret_to);
/* The knob that leads from one to the other in one step, -1 if it takes more or none. */
int tuner_settings_move_of(struct tuner_settings from, struct tuner_settings to);

/* Steps from one to the other, and the first of them. Batches grow before a poller goes to sleep,
 * which costs a wake-up a batch, and what is kept ready comes first of all. */
unsigned tuner_settings_distance(struct tuner_settings from, struct tuner_settings to);
struct tuner_settings tuner_settings_toward(struct tuner_settings from, struct tuner_settings to);

/* One word, a byte a knob, for an atomic that data-path threads read. */
uint32_t tuner_settings_pack(struct tuner_settings s);
struct tuner_settings tuner_settings_unpack(uint32_t word);

/* "lanes=4 poll_us=50 batch=16 reserve_mib=64". Returns out. */
#define TUNER_SETTINGS_TEXT_BYTES 80
char *tuner_settings_format(struct tuner_settings s, char out[TUNER_SETTINGS_TEXT_BYTES]);

#endif
