/* SPDX-License-Identifier: Apache-2.0 */
/* What other threads ask of the loop, and tell it: see loop.h. Any thread; it takes effect with the
 * next window. */
#include "tuner/loop_internal.h"

struct tuner_settings tuner_loop_settings(const struct tuner_loop *loop)
{
	return tuner_settings_unpack(atomic_load_explicit(&loop->in_force, memory_order_relaxed));
}

void tuner_loop_freeze(struct tuner_loop *loop, bool frozen)
{
	pthread_mutex_lock(&loop->lock);
	loop->frozen = frozen;
	loop->is_set &= frozen;
	pthread_mutex_unlock(&loop->lock);
}

void tuner_loop_set_knobs(struct tuner_loop *loop, unsigned mask, struct tuner_settings s)
{
	pthread_mutex_lock(&loop->lock);
	if (!loop->is_set)
		loop->set = tuner_loop_settings(loop);
	for (int k = 0; k < TUNER_KNOBS; k++)
		if (mask & 1U << k)
			loop->set.level[k] = s.level[k];
	loop->frozen = loop->is_set = true;
	pthread_mutex_unlock(&loop->lock);
}

void tuner_loop_set(struct tuner_loop *loop, struct tuner_settings s)
{
	tuner_loop_set_knobs(loop, (1U << TUNER_KNOBS) - 1, s);
}

void tuner_loop_state(struct tuner_loop *loop, struct tuner_loop_state *ret_state)
{
	pthread_mutex_lock(&loop->lock);
	*ret_state = (struct tuner_loop_state){
		.frozen = loop->frozen,
		.set_by_hand = loop->is_set,
		.set = loop->set,
		.recording = loop->recording,
		.failure = loop->failure,
		.windows = loop->windows,
	};
	pthread_mutex_unlock(&loop->lock);
}

json_t *tuner_loop_explain(struct tuner_loop *loop, unsigned n)
{
	json_t *list = json_array();

	pthread_mutex_lock(&loop->lock);
	for (unsigned i = 0; i < n; i++) {
		const struct tuner_decision *d = decision_log_get(&loop->log, i);

		if (!d)
			break;
		json_array_append_new(list, tuner_explain_decision(d));
	}
	pthread_mutex_unlock(&loop->lock);
	return list;
}

void tuner_loop_record(struct tuner_loop *loop, FILE *out)
{
	FILE *old;

	pthread_mutex_lock(&loop->lock);
	old = loop->next_trace;
	loop->next_trace = out;
	loop->new_trace = true;
	pthread_mutex_unlock(&loop->lock);
	if (old)
		fclose(old);
}
