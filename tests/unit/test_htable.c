/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table against an array that says who is in it, through splits, and with hashes that
 * collide. */
#include "fs/store/htable.h"
#include "tests/unit/unit_main.h"
#include "tuner/rng.h"

#include <stdbool.h>
#include <stdlib.h>

#define MEMBERS 6000

struct member {
	struct htable_node node;
	uint64_t hash;
	unsigned seen;
	bool in;
};

static struct member *all;
static struct htable h;
static struct rng r;

static uint64_t hash_of(const struct htable_node *n)
{
	return ((const struct member *)n)->hash;
}

static void setup(void)
{
	all = calloc(MEMBERS, sizeof(*all));
	ck_assert_ptr_nonnull(all);
	ck_assert_int_eq(htable_init(&h, hash_of), 0);
	r.state = 7;
}

static void teardown(void)
{
	htable_fini(&h);
	free(all);
}

static bool in_chain(const struct member *m)
{
	for (struct htable_node *n = htable_chain(&h, m->hash); n; n = n->next)
		if (n == &m->node)
			return true;
	return false;
}

/* Each member is found by its hash and by the walk, once; nobody else is. */
static void check_all(void)
{
	size_t walked = 0, in = 0, wrong = 0;

	for (size_t i = 0; i < htable_bucket_count(&h); i++) {
		for (struct htable_node *n = htable_bucket(&h, i); n; n = n->next) {
			((struct member *)n)->seen++;
			walked++;
		}
	}
	for (unsigned i = 0; i < MEMBERS; i++) {
		wrong += in_chain(&all[i]) != all[i].in || all[i].seen != all[i].in;
		all[i].seen = 0;
		in += all[i].in;
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_eq(walked, in);
	ck_assert_uint_eq(h.count, in);
}

static void add(struct member *m)
{
	htable_add(&h, &m->node);
	m->in = true;
}

static void del(struct member *m)
{
	htable_del(&h, &m->node);
	m->in = false;
}

static void random_hashes(uint64_t mask)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		all[i].hash = rng_next(&r) & mask;
}

START_TEST(members_are_found_while_it_grows)
{
	random_hashes(UINT64_MAX);
	for (unsigned i = 0; i < MEMBERS; i++) {
		add(&all[i]);
		if (i == HTABLE_FIRST_BUCKETS || i == HTABLE_FIRST_BUCKETS + 1 || i == 5000)
			check_all();
	}
	check_all();
	/* A bucket for each, so that a chain is short. */
	ck_assert_uint_ge(htable_bucket_count(&h), MEMBERS);
}
END_TEST

START_TEST(members_come_and_go)
{
	random_hashes(UINT64_MAX);
	for (unsigned i = 0; i < 10 * MEMBERS; i++) {
		struct member *m = &all[rng_below(&r, MEMBERS)];

		if (m->in)
			del(m);
		else
			add(m);
		if (i % MEMBERS == 0)
			check_all();
	}
	check_all();
	for (unsigned i = 0; i < MEMBERS; i++)
		if (all[i].in)
			del(&all[i]);
	check_all();
}
END_TEST

/* Eight hashes for all: chains of thousands, from whose middle members go. */
START_TEST(hashes_may_collide)
{
	random_hashes(7);
	for (unsigned i = 0; i < 2000; i++)
		add(&all[i]);
	check_all();
	for (unsigned i = 0; i < 2000; i += 3)
		del(&all[i]);
	check_all();
}
END_TEST

START_TEST(buckets_may_be_reserved)
{
	size_t buckets;

	random_hashes(UINT64_MAX);
	htable_reserve(&h, 3000);
	buckets = htable_bucket_count(&h);
	ck_assert_uint_eq(buckets, 3000);
	for (unsigned i = 0; i < 3000; i++)
		add(&all[i]);
	ck_assert_uint_eq(htable_bucket_count(&h), buckets);
	htable_reserve(&h, 5000); /* not with members */
	ck_assert_uint_eq(htable_bucket_count(&h), buckets);
	for (unsigned i = 3000; i < MEMBERS; i++)
		add(&all[i]);
	check_all();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("htable");
	TCase *c = tcase_create("all");

	tcase_set_timeout(c, 120); /* on a machine that others use */
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, members_are_found_while_it_grows);
	tcase_add_test(c, members_come_and_go);
	tcase_add_test(c, hashes_may_collide);
	tcase_add_test(c, buckets_may_be_reserved);
	suite_add_tcase(s, c);
	return unit_run(s);
}
