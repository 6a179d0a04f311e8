/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target for a tuner's trace, as kvfs tune --replay reads it: the input is the file. What was
 * read of a window is within its bounds. Corpus: tests/fuzz/corpus/trace.
 */
#include "tuner/trace.h"

#include <stdbool.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static bool on_ladder(struct tuner_settings s)
{
	for (int k = 0; k < TUNER_KNOBS; k++)
		if (s.level[k] >= tuner_knob_levels((enum tuner_knob)k))
			return false;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *in = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct tuner_config config;
	struct tuner_recorded r;
	void *model = NULL;
	size_t len = 0;

	if (!in)
		return 0;
	if (tuner_trace_read_head(in, &config, &model, &len) == 0) {
		must(on_ladder(config.shipped));
		must(config.policy != NULL && (model != NULL || len == 0));
		while (tuner_trace_read(in, &r) == 0)
			must(on_ladder(r.window.in_force) && on_ladder(r.after));
	}
	free(model);
	fclose(in);
	return 0;
}
