/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TUNER_CONTEXT_H
#define KVFS_TUNER_CONTEXT_H
/*
 * Loads the tuner has met, and what it measured of each: the best settings so far, their reward,
 * that of the shipped settings, and which settings were rolled back and until when. A load is
 * recognised by what settings don't change: sizes, records under way (their number is the
 * clients'), what other programs take of CPU and link, how many mirrors there are and over what.
 * Clients and mirrors on this machine are other programs, and what they take follows our
 * throughput: other programs' CPU tells loads apart only as far as that doesn't explain it. A fixed
 * table; the load not met for longest gives way. Owned by the tuner's thread.
 */
#include "tuner/settings.h"
#include "tuner/window_features.h"

#define CONTEXTS_MAX 24
#define CONTEXT_BANS_MAX 48
enum context_part {
	CONTEXT_SIZE,
	CONTEXT_SIZES, /* how far apart they are */
	CONTEXT_IN_FLIGHT,
	CONTEXT_LINK_OTHER,
	CONTEXT_CPU_OTHER,
	CONTEXT_CPUS,
	CONTEXT_TRANSPORTS, /* how many mirrors, and over what: any other set is another load */
	CONTEXT_KEYS
};

/* Mean of rewards; old ones fade once there are `most`. */
struct mean {
	double value;
	unsigned n;
};
void mean_add(struct mean *m, double value, unsigned most);

#define CONTEXT_IN_FLIGHT_UNIT 0.6f /* doublings */

struct context_key {
	float v[CONTEXT_KEYS]; /* scaled: a distance of 1 is another load; NaN: unknown */
	/* Under these settings and at this rate, on processors that are scaled as what others take
	 * of them. */
	struct tuner_settings in_force;
	float ops_per_s, cpu_own, cpus;
};

struct key_mean {
	struct context_key mean;
	unsigned n;
};
void key_mean_add(struct key_mean *m, const struct context_key *key, unsigned most);

struct context_ban {
	struct tuner_settings settings;
	uint64_t until;  /* window */
	uint32_t length; /* windows; doubles when it is banned again */
};

struct context {
	bool used;
	uint64_t seen; /* window */
	struct context_key key;
	struct tuner_settings best;
	struct tuner_features look; /* at the static settings; see tuner_query */
	unsigned looks;             /* windows in it */
	struct key_mean base; /* the load, more closely, while reward was measured */
	struct mean reward;   /* at best */
	struct mean shipped;  /* at the static settings */
	uint64_t audit_at;    /* window of the next comparison with the static settings */
	int nbans;
	struct context_ban ban[CONTEXT_BANS_MAX];
};

struct contexts {
	struct context all[CONTEXTS_MAX];
};

void context_key_of(const struct tuner_features *f, struct tuner_settings in_force,
		    struct context_key *ret_key);
/* The largest difference of a component that both know and that other settings don't explain. */
double context_distance(const struct context_key *a, const struct context_key *b);

/* Standard deviation of a window's key, learnt from windows next to each other, of other programs'
 * CPU from those under the same settings. */
struct key_noise {
	float v[CONTEXT_KEYS];
	struct context_key last;
	bool known; /* last is */
};
void key_noise_add(struct key_noise *n, const struct context_key *key);
/* Whether two means differ by more than they may: within a load clients and sizes still move, and
 * then rewards are no longer comparable. */
bool context_moved(const struct key_mean *a, const struct key_mean *b, const struct key_noise *n);

/* The nearest known load within distance 1, or NULL. */
struct context *contexts_find(struct contexts *c, const struct context_key *key);
/* A place for a new load, emptied. Never the one in `keep`. */
struct context *contexts_new(struct contexts *c, const struct context_key *key, uint64_t window,
			     const struct context *keep);

/* One more window of the load; at_shipped: at the static settings. */
void context_look(struct context *ctx, const struct tuner_features *f, bool at_shipped);

/* Up to n settings that were best in other loads, of the nearest loads first, none twice and none
 * as in `ctx`. Returns how many. */
int contexts_remember(const struct contexts *c, const struct context *ctx, int n,
		      struct tuner_settings *ret_settings);

bool context_banned(const struct context *ctx, struct tuner_settings s, uint64_t window);
void context_ban(struct context *ctx, struct tuner_settings s, uint64_t window);
void context_unban_all(struct context *ctx);

#endif
