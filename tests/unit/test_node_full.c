/* SPDX-License-Identifier: Apache-2.0 */
/* A node with a full arena: recovery, a mirror that follows, a resync. */
#include "tests/unit/node_rig.h"

#define FULL_FILES 24

static uint64_t full_size[FULL_FILES];

static uint64_t full_ino(unsigned f)
{
	return 2 + f;
}

/* A node of 32 MiB (16 of them are what a mirror takes more than its arena), filled to the last
 * slot with values of all sizes, in an order that depends on variant. */
static struct node *node_fill(enum options_role role, int variant)
{
	uint64_t ckpts = 0, seed = (uint64_t)variant * 7919 + 1;
	unsigned refused = 0;
	struct node *n;

	volume_make(role);
	volume.opt.arena_bytes = role == OPTIONS_MOUNT ? 32 << 20 : 16 << 20;
	n = node_start();
	memset(full_size, 0, sizeof(full_size));
	put_many(n, FULL_FILES, n->epoch);
	while (refused < 200) {
		unsigned f;
		uint32_t len = VALUE_CHUNK_BYTES;

		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		f = (unsigned)(seed >> 33) % FULL_FILES;
		if (variant % 2 && f < 20)
			len = 100U + (uint32_t)(seed >> 40) % 60000;
		if (put_bytes(n, full_ino(f), full_size[f], len, &ckpts) == 0)
			full_size[f] += len;
		else
			refused++;
	}
	ck_assert_uint_gt(ckpts, 10);
	return n;
}

/* Every whole chunk is written over. Returns how many were refused. */
static unsigned write_over(struct node *n)
{
	uint64_t ckpts = 0;
	unsigned refused = 0;

	for (unsigned f = 0; f < FULL_FILES; f++)
		for (uint64_t at = 0; at + VALUE_CHUNK_BYTES <= full_size[f];
		     at += VALUE_CHUNK_BYTES)
			refused += put_bytes(n, full_ino(f), at, VALUE_CHUNK_BYTES, &ckpts) != 0;
	return refused;
}

/*
 * Filled, then written over in place, as far as that goes. Whatever fitted while it ran must fit
 * the next time, with the same arena; and what is free then is no more than the arena.
 */
START_TEST(full_arena_recovers)
{
	uint8_t before[16], after[16];
	struct node *n = node_fill(OPTIONS_MOUNT, _i);

	for (unsigned round = 0; round < 3; round++) {
		write_over(n);
		digest_of(n, before);
		node_close(n);
		n = node_start();
		digest_of(n, after);
		ck_assert_mem_eq(before, after, sizeof(after));
		ck_assert_uint_le(slab_available_bytes(n->slab), 32 << 20);
	}
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

#define FULL_REFS 1024

/* A reference to every chunk, as a running checkpoint's captures are. */
static unsigned share_all(struct node *n, struct value_ref refs[FULL_REFS])
{
	unsigned count = 0;

	store_lock(n->store);
	for (unsigned f = 0; f < FULL_FILES; f++) {
		const struct inode *in = store_inode_locked(n->store, full_ino(f));
		uint64_t len = 0;

		for (uint64_t at = 0; at < full_size[f]; at += len)
			count += (unsigned)value_refs(&in->u.value, at, full_size[f] - at,
						      refs + count, (int)(FULL_REFS - count), &len);
	}
	store_unlock(n->store);
	ck_assert_uint_lt(count, FULL_REFS);
	return count;
}

/* What a primary overwrites in place, in a full arena, a mirror must take while its own checkpoint
 * still needs what was there. Then the arena is the limit again. */
START_TEST(mirror_follows_a_full_primary)
{
	static struct value_ref refs[FULL_REFS];
	struct node *n = node_fill(OPTIONS_MIRROR, 0);
	unsigned count = share_all(n, refs);
	uint64_t ckpts = 0;

	ck_assert_uint_gt(write_over(n), 0);
	follow = true;
	ck_assert_uint_eq(write_over(n), 0);
	follow = false;
	ck_assert_int_eq(put_bytes(n, full_ino(0), full_size[0], 100, &ckpts), -ENOSPC);
	while (count > 0)
		value_ref_put(n->slab, &refs[--count]);
	ck_assert_uint_eq(write_over(n), 0);
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

/* The image of a full primary, which has the same arena, fits. */
START_TEST(full_arena_resyncs)
{
	struct node *n = node_fill(OPTIONS_MIRROR, _i);
	uint8_t before[16], after[16];
	uint64_t lsn, got = 0;

	write_over(n);
	ck_assert_int_eq(node_ckpt_run(n), 0);
	digest_of(n, before);
	lsn = node_lsn(n);
	ck_assert_int_eq(mkdirat(volume.dirfd, "sent", 0700), 0);
	link_all(CKPT_DIR_NAME, "sent");
	ck_assert_int_eq(node_mirror_ops.resync_begin(n), 0);
	link_all("sent", CKPT_DIR_NAME);
	ck_assert_int_eq(node_mirror_ops.resync_install(n, &no_progress, &got), 0);
	ck_assert_uint_eq(got, lsn);
	digest_of(n, after);
	ck_assert_mem_eq(before, after, sizeof(after));
	node_close(n);
	crash_volume_remove(&volume);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("node_full");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120); /* a full arena under a sanitizer */
	tcase_add_loop_test(t, full_arena_recovers, 0, 6);
	tcase_add_loop_test(t, full_arena_resyncs, 0, 6);
	tcase_add_test(t, mirror_follows_a_full_primary);
	suite_add_tcase(s, t);
	return unit_run(s);
}
