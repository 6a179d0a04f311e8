/* SPDX-License-Identifier: Apache-2.0 */
/* The decision log and its forms. */
#include "tuner/explain.h"

#include <math.h>

void decision_log_add(struct decision_log *log, const struct tuner_decision *d)
{
	struct tuner_decision *place = &log->all[log->added++ % DECISION_LOG_MAX];

	*place = *d;
	place->query.features = &place->look;
}

const struct tuner_decision *decision_log_get(const struct decision_log *log, unsigned i)
{
	if (i >= DECISION_LOG_MAX || i >= log->added)
		return NULL;
	return &log->all[(log->added - 1 - i) % DECISION_LOG_MAX];
}

static json_t *number(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

json_t *tuner_explain_settings(struct tuner_settings s)
{
	json_t *j = json_object();

	for (int k = 0; k < TUNER_KNOBS; k++)
		json_object_set_new(j, tuner_knob_name((enum tuner_knob)k),
				    json_integer(tuner_knob_value((enum tuner_knob)k, s.level[k])));
	return j;
}

json_t *tuner_explain_features(const struct tuner_features *f)
{
	json_t *j = json_object();

	for (int i = 0; i < TUNER_FEATURES; i++)
		json_object_set_new(j, tuner_feature_name((enum tuner_feature)i), number(f->v[i]));
	return j;
}

static json_t *estimated(const struct tuner_features *f)
{
	json_t *list = json_array();

	for (int i = 0; i < TUNER_FEATURES; i++)
		if (tuner_feature_estimated(f, (enum tuner_feature)i))
			json_array_append_new(
				list, json_string(tuner_feature_name((enum tuner_feature)i)));
	return list;
}

static json_t *candidates(const struct tuner_decision *d)
{
	json_t *list = json_array();

	for (int i = 0; i < d->query.n; i++) {
		json_t *j = tuner_explain_settings(d->query.candidate[i]);

		json_object_set_new(j, "score", number(d->proposal.score[i]));
		json_object_set_new(j, "predicted", number(d->proposal.predicted[i]));
		json_object_set_new(j, "error", number(d->proposal.error[i]));
		json_array_append_new(list, j);
	}
	return list;
}

json_t *tuner_explain_decision(const struct tuner_decision *d)
{
	json_t *j = json_object();

	if (!j)
		return NULL;
	json_object_set_new(j, "window", json_integer((json_int_t)d->window));
	json_object_set_new(j, "action", json_string(tuner_action_name(d->action)));
	json_object_set_new(j, "why", json_string(d->why));
	json_object_set_new(j, "before", tuner_explain_settings(d->before));
	json_object_set_new(j, "after", tuner_explain_settings(d->after));
	json_object_set_new(j, "reward", number(d->reward));
	json_object_set_new(j, "expected", number(d->expected));
	json_object_set_new(j, "gain", number(d->gain));
	json_object_set_new(j, "regret", number(d->regret));
	json_object_set_new(j, "features", tuner_explain_features(&d->features));
	json_object_set_new(j, "estimated", estimated(&d->features));
	if (d->query.n > 1) {
		json_object_set_new(j, "load", tuner_explain_features(&d->look));
		json_object_set_new(j, "candidates", candidates(d));
		json_object_set_new(j, "chosen", json_integer(d->proposal.choice));
		json_object_set_new(j, "choice",
				    tuner_explain_settings(d->query.candidate[d->proposal.choice]));
		json_object_set_new(j, "explored", json_boolean(d->proposal.explored));
		json_object_set_new(j, "prior", number(d->proposal.prior));
		json_object_set_new(j, "prior_error", number(d->proposal.prior_error));
	}
	return j;
}

void tuner_explain_print(FILE *out, const struct tuner_decision *d)
{
	char text[TUNER_SETTINGS_TEXT_BYTES];

	fprintf(out, "window %llu: %s: %s\n", (unsigned long long)d->window,
		tuner_action_name(d->action), d->why);
	fprintf(out, "  settings  %s\n", tuner_settings_format(d->before, text));
	if (!tuner_settings_equal(d->before, d->after))
		fprintf(out, "  next      %s\n", tuner_settings_format(d->after, text));
	fprintf(out, "  reward    %.4f, expected %.4f, gain %+.4f\n", d->reward, d->expected,
		d->gain);
	for (int i = 0; d->query.n > 1 && i < d->query.n; i++) {
		fprintf(out, "  %s %+.4f (%+.4f", i == d->proposal.choice ? "=>" : "  ",
			d->proposal.score[i], d->proposal.predicted[i]);
		if (!isnan(d->proposal.error[i]))
			fprintf(out, ", give or take %.4f", d->proposal.error[i]);
		fprintf(out, ") %s\n", tuner_settings_format(d->query.candidate[i], text));
	}
	fprintf(out, "  features ");
	for (int i = 0; i < TUNER_FEATURES; i++)
		if (!isnan(d->features.v[i]))
			fprintf(out, " %s=%s%.4g", tuner_feature_name((enum tuner_feature)i),
				tuner_feature_estimated(&d->features, (enum tuner_feature)i) ? "~" :
											       "",
				(double)d->features.v[i]);
	fputc('\n', out);
}
