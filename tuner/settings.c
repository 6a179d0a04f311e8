/* SPDX-License-Identifier: Apache-2.0 */
/* The ladders, steps on them, and their bounds. Pure. */
#include "tuner/settings.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned levels;
	uint32_t values[TUNER_LEVELS_MAX];
} ladders[TUNER_KNOBS] = {
	[TUNER_KNOB_LANES] = { "lanes", 7, { 1, 2, 4, 10, 20, 30, 40 } },
	[TUNER_KNOB_POLL] = { "poll_us", 3, { 0, 50, 1000 } },
	[TUNER_KNOB_BATCH] = { "batch", 4, { 1, 4, 16, 64 } },
	[TUNER_KNOB_RESERVE] = { "reserve_mib", 5, { 64, 128, 256, 512, 1024 } },
};

#define SHIPPED_LANES_OPEN 40

const struct tuner_settings tuner_settings_shipped = { { 4, 1, 3, 0 } };

const char *tuner_knob_name(enum tuner_knob knob)
{
	return ladders[knob].name;
}

unsigned tuner_knob_levels(enum tuner_knob knob)
{
	return ladders[knob].levels;
}

uint32_t tuner_knob_value(enum tuner_knob knob, unsigned level)
{
	assert(level < ladders[knob].levels);
	return ladders[knob].values[level];
}

uint8_t tuner_knob_level(enum tuner_knob knob, uint32_t value)
{
	uint8_t level = 0;

	while (level + 1U < ladders[knob].levels && ladders[knob].values[level + 1] <= value)
		level++;
	return level;
}

void tuner_bounds_all(struct tuner_bounds *ret_bounds)
{
	for (int k = 0; k < TUNER_KNOBS; k++) {
		ret_bounds->lo[k] = 0;
		ret_bounds->hi[k] = (uint8_t)(ladders[k].levels - 1);
	}
}

void tuner_bounds_shipped(struct tuner_bounds *ret_bounds)
{
	tuner_bounds_all(ret_bounds);
	ret_bounds->hi[TUNER_KNOB_LANES] =
		tuner_knob_level(TUNER_KNOB_LANES, SHIPPED_LANES_OPEN);
}

void tuner_bounds_sane(struct tuner_bounds *bounds)
{
	for (int k = 0; k < TUNER_KNOBS; k++) {
		uint8_t top = (uint8_t)(ladders[k].levels - 1);

		if (bounds->hi[k] > top)
			bounds->hi[k] = top;
		if (bounds->lo[k] > bounds->hi[k])
			bounds->lo[k] = bounds->hi[k];
	}
}

bool tuner_settings_allowed(const struct tuner_settings *s, const struct tuner_bounds *b)
{
	for (int k = 0; k < TUNER_KNOBS; k++)
		if (s->level[k] < b->lo[k] || s->level[k] > b->hi[k])
			return false;
	return true;
}

struct tuner_settings tuner_settings_clamp(struct tuner_settings s, const struct tuner_bounds *b)
{
	for (int k = 0; k < TUNER_KNOBS; k++) {
		if (s.level[k] < b->lo[k])
			s.level[k] = b->lo[k];
		if (s.level[k] > b->hi[k])
			s.level[k] = b->hi[k];
	}
	return s;
}

bool tuner_settings_equal(struct tuner_settings a, struct tuner_settings b)
{
	return memcmp(a.level, b.level, sizeof(a.level)) == 0;
}

bool tuner_settings_move(struct tuner_settings from, unsigned move, const struct tuner_bounds *b,
			 struct tuner_settings *ret_to)
{
	unsigned knob = move / 2;
	int level;

	assert(move < TUNER_MOVES);
	level = from.level[knob] + (move % 2 ? -1 : 1);
	if (level < b->lo[knob] || level > b->hi[knob])
		return false;
	from.level[knob] = (uint8_t)level;
	*ret_to = from;
	return true;
}

int tuner_settings_move_of(struct tuner_settings from, struct tuner_settings to)
{
	int move = -1;

	for (int k = 0; k < TUNER_KNOBS; k++) {
		int step = to.level[k] - from.level[k];

		if (step == 0)
			continue;
		if (move >= 0 || step > 1 || step < -1)
			return -1;
		move = 2 * k + (step < 0);
	}
	return move;
}

unsigned tuner_settings_distance(struct tuner_settings from, struct tuner_settings to)
{
	int steps = 0;

	for (int k = 0; k < TUNER_KNOBS; k++)
		steps += abs(to.level[k] - from.level[k]);
	return (unsigned)steps;
}

struct tuner_settings tuner_settings_toward(struct tuner_settings from, struct tuner_settings to)
{
	static const enum tuner_knob order[TUNER_KNOBS] = {
		TUNER_KNOB_RESERVE, TUNER_KNOB_BATCH, TUNER_KNOB_LANES, TUNER_KNOB_POLL,
	};

	for (int i = 0; i < TUNER_KNOBS; i++) {
		uint8_t *level = &from.level[order[i]], goal = to.level[order[i]];

		if (*level == goal)
			continue;
		*level = (uint8_t)(*level < goal ? *level + 1 : *level - 1);
		break;
	}
	return from;
}

uint32_t tuner_settings_pack(struct tuner_settings s)
{
	uint32_t word = 0;

	for (int k = 0; k < TUNER_KNOBS; k++)
		word |= (uint32_t)s.level[k] << (8 * k);
	return word;
}

struct tuner_settings tuner_settings_unpack(uint32_t word)
{
	struct tuner_settings s;

	for (int k = 0; k < TUNER_KNOBS; k++) {
		s.level[k] = (uint8_t)(word >> (8 * k));
		if (s.level[k] >= ladders[k].levels)
			s.level[k] = (uint8_t)(ladders[k].levels - 1);
	}
	return s;
}

char *tuner_settings_format(struct tuner_settings s, char out[TUNER_SETTINGS_TEXT_BYTES])
{
	size_t len = 0;

	for (int k = 0; k < TUNER_KNOBS; k++)
		len += (size_t)snprintf(out + len, TUNER_SETTINGS_TEXT_BYTES - len, "%s%s=%u",
					k ? " " : "", ladders[k].name,
					ladders[k].values[s.level[k]]);
	return out;
}
