/* SPDX-License-Identifier: Apache-2.0 */
/* What kvfs tune and kvfs status show of a tuner, for people, from what the daemon sends. */
#include "fs/admin/control.h"

#include <stdio.h>
#include <string.h>

/* Decisions as the daemon sends them: like tuner_explain_print. */
static void print_settings(const char *what, const json_t *s)
{
	const char *name;
	json_t *v;

	printf("%s", what);
	json_object_foreach((json_t *)(uintptr_t)s, name, v)
		if (json_is_integer(v))
			printf(" %s=%lld", name, (long long)json_integer_value(v));
}

static void print_number(const char *what, const json_t *v)
{
	if (json_is_number(v))
		printf("%s%.4f", what, json_number_value(v));
	else
		printf("%s-", what);
}

static void print_candidates(const json_t *d)
{
	const json_t *list = json_object_get(d, "candidates"), *c;
	size_t i;

	json_array_foreach(list, i, c) {
		bool chosen = (json_int_t)i == json_integer_value(json_object_get(d, "chosen"));

		print_number(chosen ? "  => " : "     ", json_object_get(c, "score"));
		print_number(" (", json_object_get(c, "predicted"));
		print_number(" +-", json_object_get(c, "error"));
		print_settings(")", c);
		printf("\n");
	}
}

static bool is_estimated(const json_t *d, const char *name)
{
	const json_t *list = json_object_get(d, "estimated"), *v;
	size_t i;

	json_array_foreach(list, i, v)
		if (json_is_string(v) && strcmp(json_string_value(v), name) == 0)
			return true;
	return false;
}

/* "~": an estimate. */
static void print_features(const char *what, const json_t *d, const json_t *features)
{
	const char *name;
	json_t *v;

	if (!features)
		return;
	printf("  %s", what);
	json_object_foreach((json_t *)(uintptr_t)features, name, v)
		if (json_is_number(v))
			printf(" %s=%s%.4g", name, is_estimated(d, name) ? "~" : "",
			       json_number_value(v));
	printf("\n");
}

void cmd_tune_print_decision(const json_t *d)
{
	printf("window %lld: %s: %s\n", (long long)json_integer_value(json_object_get(d, "window")),
	       json_string_value(json_object_get(d, "action")),
	       json_string_value(json_object_get(d, "why")));
	print_settings("  settings ", json_object_get(d, "before"));
	if (!json_equal(json_object_get(d, "before"), json_object_get(d, "after")))
		print_settings("\n  next     ", json_object_get(d, "after"));
	print_number("\n  reward    ", json_object_get(d, "reward"));
	print_number(", expected ", json_object_get(d, "expected"));
	print_number(", gain ", json_object_get(d, "gain"));
	printf("\n");
	print_candidates(d);
	print_features("load     ", d, json_object_get(d, "load"));
	print_features("features ", d, json_object_get(d, "features"));
}

void cmd_tune_print(const json_t *t)
{
	const json_t *why = json_object_get(t, "why_not"), *policy = json_object_get(t, "policy");
	const char *failure = json_string_value(json_object_get(t, "failure"));

	printf("tuner       %s", json_is_true(json_object_get(t, "running")) ?
					 json_string_value(policy) : "off");
	if (why)
		printf(": %s", json_string_value(why));
	if (failure)
		printf(", gave up: %s", failure);
	if (json_is_true(json_object_get(t, "set_by_hand")))
		printf(", set by hand");
	else if (json_is_true(json_object_get(t, "frozen")))
		printf(", frozen by hand");
	if (json_is_true(json_object_get(t, "recording")))
		printf(", recording");
	if (json_object_get(t, "settings"))
		print_settings(";", json_object_get(t, "settings"));
	if (json_object_get(t, "next"))
		print_settings("; next", json_object_get(t, "next"));
	printf("\n");
}
