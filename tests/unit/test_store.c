/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/store/store.h"

#include "tests/unit/store_fixture.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <linux/falloc.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define ARENA (64ULL << 20)
#define ROOT STORE_ROOT_INO
#define EXCHANGE 2

static struct fixture f;

static void setup(void)
{
	fixture_open(&f, ARENA, 1000000);
}

static void teardown(void)
{
	fixture_close(&f);
}

static uint64_t ns_of(struct timespec t)
{
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

START_TEST(create_makes_every_type)
{
	static const uint32_t types[] = { S_IFREG, S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK };
	char name[8];
	struct stat st;

	for (unsigned i = 0; i < 6; i++) {
		uint64_t ino;

		snprintf(name, sizeof(name), "n%u", i);
		ino = make(&f, ROOT, name, types[i] | 0644);
		st = stat_of(&f, ino);
		ck_assert_uint_eq(st.st_mode, types[i] | 0644);
		ck_assert_uint_eq(st.st_nlink, types[i] == S_IFDIR ? 2 : 1);
		ck_assert_uint_eq(ns_of(st.st_mtim), f.now_ns);
		ck_assert_uint_eq(ns_of(st.st_ctim), f.now_ns);
		ck_assert_uint_eq(ns_of(st.st_atim), f.now_ns);
		ck_assert_uint_eq(lookup(&f, ROOT, name), ino);
	}
	ck_assert_int_eq(do_create_link(&f, ROOT, "sym", S_IFLNK | 0777, "where/to"), 0);
	ck_assert_int_eq(stat_of(&f, lookup(&f, ROOT, "sym")).st_size, 8);
	st = stat_of(&f, ROOT);
	ck_assert_uint_eq(st.st_nlink, 3);
	ck_assert_uint_eq(ns_of(st.st_mtim), f.now_ns);
}
END_TEST

START_TEST(create_refuses)
{
	uint64_t file = make(&f, ROOT, "file", S_IFREG | 0600);
	uint64_t dir = make(&f, ROOT, "dir", S_IFDIR | 0700);
	struct record r = { .opcode = RECORD_CREATE,
			    .ino = 77,
			    .u.create = { .parent_ino = ROOT, .mode = S_IFREG } };
	char longer[257];

	memset(longer, 'a', 256);
	longer[256] = '\0';
	ck_assert_int_eq(do_create(&f, ROOT, "file", S_IFREG), -EEXIST);
	ck_assert_int_eq(do_create(&f, file, "x", S_IFREG), -ENOTDIR);
	ck_assert_int_eq(do_create(&f, 99, "x", S_IFREG), -ENOENT);
	ck_assert_int_eq(do_create(&f, ROOT, "x", 0644), -EINVAL);
	ck_assert_int_eq(do_create(&f, ROOT, "", S_IFREG), -EINVAL);
	ck_assert_int_eq(do_create(&f, ROOT, longer, S_IFREG), -ENAMETOOLONG);
	ck_assert_int_eq(do_create(&f, ROOT, "x", S_IFLNK), -EINVAL);
	record_set_name(&r, "x");
	ck_assert_int_eq(fixture_apply(&f, &r), -ENXIO);
	ck_assert_int_eq(do_unlink(&f, dir, ROOT, "dir", true), 0);
	ck_assert_int_eq(do_create(&f, dir, "x", S_IFREG), -ENOENT);
	longer[255] = '\0';
	ck_assert_int_eq(do_create(&f, ROOT, longer, S_IFREG), 0);
}
END_TEST

START_TEST(create_stops_at_inodes_max)
{
	struct fixture g;

	fixture_open(&g, ARENA, 3);
	make(&g, ROOT, "a", S_IFREG);
	make(&g, ROOT, "b", S_IFREG);
	ck_assert_int_eq(do_create(&g, ROOT, "c", S_IFREG), -ENOSPC);
	fixture_close(&g);
}
END_TEST

START_TEST(write_and_truncate_keep_times_and_bytes)
{
	uint64_t ino = make(&f, ROOT, "v", S_IFREG | 0644), before;
	struct store_stats stats;
	char buf[16];

	ck_assert_int_eq(do_write(&f, ino, 0, "hello", 5), 0);
	ck_assert_int_eq(do_write(&f, ino, 70000, "there", 5), 0);
	ck_assert_int_eq(stat_of(&f, ino).st_size, 70005);
	ck_assert_uint_eq(read_value(&f, ino, 69998, buf, 16), 7);
	ck_assert_mem_eq(buf, "\0\0there", 7);
	before = f.now_ns;
	ck_assert_int_eq(do_truncate(&f, ino, 70005), 0);
	ck_assert_uint_gt(ns_of(stat_of(&f, ino).st_mtim), before);
	ck_assert_int_eq(do_truncate(&f, ino, 3), 0);
	ck_assert_uint_eq(read_value(&f, ino, 0, buf, 16), 3);
	ck_assert_mem_eq(buf, "hel", 3);
	store_lock(f.st);
	store_stats_locked(f.st, &stats);
	store_unlock(f.st);
	ck_assert_uint_eq(stats.value_bytes, 3);
	ck_assert_int_eq(do_write(&f, ROOT, 0, "x", 1), -EISDIR);
	ck_assert_int_eq(do_write(&f, 99, 0, "x", 1), -ENOENT);
	ck_assert_int_eq(do_write(&f, make(&f, ROOT, "p", S_IFIFO), 0, "x", 1), -EINVAL);
	ck_assert_int_eq(do_write(&f, ino, VALUE_SIZE_MAX, "x", 1), -EFBIG);
	ck_assert_int_eq(do_truncate(&f, ROOT, 0), -EISDIR);
}
END_TEST

START_TEST(write_drops_set_id_bits)
{
	uint64_t ino = make(&f, ROOT, "s", S_IFREG | 06755);
	struct record r = { .opcode = RECORD_WRITE, .ino = ino, .data = "x", .data_len = 1 };

	r.u.write.clear_suid = true;
	ck_assert_int_eq(fixture_apply(&f, &r), 0);
	ck_assert_uint_eq(stat_of(&f, ino).st_mode, S_IFREG | 0755);
}
END_TEST

START_TEST(full_arena_leaves_all_as_it_was)
{
	uint64_t ino = make(&f, ROOT, "big", S_IFREG | 0644), size;
	uint8_t *data = calloc(1, RECORD_DATA_MAX);
	int err = 0;

	for (uint64_t off = 0; !err; off += RECORD_DATA_MAX)
		err = do_write(&f, ino, off, data, RECORD_DATA_MAX);
	ck_assert_int_eq(err, -ENOSPC);
	size = (uint64_t)stat_of(&f, ino).st_size;
	ck_assert_int_eq(do_write(&f, ino, size, data, RECORD_DATA_MAX), -ENOSPC);
	ck_assert_uint_eq((uint64_t)stat_of(&f, ino).st_size, size);
	ck_assert_int_eq(do_truncate(&f, ino, 10), 0);
	ck_assert_int_eq(do_write(&f, ino, 10, data, RECORD_DATA_MAX), 0);
	free(data);
}
END_TEST

START_TEST(setattr_follows_its_mask)
{
	uint64_t ino = make(&f, ROOT, "a", S_IFREG | 0644), made = f.now_ns;
	struct record r = { .opcode = RECORD_SETATTR, .ino = ino };
	struct stat st;

	r.u.setattr.valid_mask = RECORD_SET_MODE | RECORD_SET_UID | RECORD_SET_MTIME;
	r.u.setattr.mode = 0600;
	r.u.setattr.uid = 5;
	r.u.setattr.mtime_ns = 42;
	ck_assert_int_eq(fixture_apply(&f, &r), 0);
	st = stat_of(&f, ino);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_uint_eq(st.st_uid, 5);
	ck_assert_uint_eq(st.st_gid, 20);
	ck_assert_uint_eq(ns_of(st.st_mtim), 42);
	ck_assert_uint_eq(ns_of(st.st_ctim), f.now_ns);
	r.u.setattr.valid_mask = RECORD_SET_ATIME_ONLY;
	r.u.setattr.atime_ns = 43;
	made = f.now_ns;
	ck_assert_int_eq(fixture_apply(&f, &r), 0);
	st = stat_of(&f, ino);
	ck_assert_uint_eq(ns_of(st.st_atim), 43);
	ck_assert_uint_eq(ns_of(st.st_ctim), made);
	store_lock(f.st);
	ck_assert_uint_eq(store_inode_locked(f.st, ino)->last_lsn, f.lsn - 1);
	store_unlock(f.st);
}
END_TEST

START_TEST(links_and_orphans)
{
	uint64_t ino = make(&f, ROOT, "a", S_IFREG | 0644);
	uint64_t dir = make(&f, ROOT, "d", S_IFDIR | 0755);
	struct store_stats stats;
	char c;

	ck_assert_int_eq(do_link(&f, ino, dir, "b"), 0);
	ck_assert_uint_eq(stat_of(&f, ino).st_nlink, 2);
	ck_assert_int_eq(do_link(&f, ino, dir, "b"), -EEXIST);
	ck_assert_int_eq(do_link(&f, dir, ROOT, "dd"), -EPERM);
	ck_assert_int_eq(do_unlink(&f, ino, ROOT, "none", false), -ENOENT);
	ck_assert_int_eq(do_unlink(&f, dir, ROOT, "a", false), -EINVAL);
	ck_assert_int_eq(do_unlink(&f, ino, ROOT, "a", true), -ENOTDIR);
	ck_assert_int_eq(do_unlink(&f, dir, ROOT, "d", false), -EISDIR);
	ck_assert_int_eq(do_unlink(&f, dir, ROOT, "d", true), -ENOTEMPTY);
	ck_assert_int_eq(do_unlink(&f, ino, ROOT, "a", false), 0);
	ck_assert_int_eq(do_free(&f, ino), -EINVAL);
	ck_assert_int_eq(do_unlink(&f, ino, dir, "b", false), 0);
	ck_assert_uint_eq(stat_of(&f, ino).st_nlink, 0);
	ck_assert_int_eq(do_write(&f, ino, 0, "z", 1), 0);
	ck_assert_uint_eq(read_value(&f, ino, 0, &c, 1), 1);
	ck_assert_int_eq(do_link(&f, ino, ROOT, "again"), -ENOENT);
	ck_assert_int_eq(do_truncate(&f, ino, 0), 0);
	store_lock(f.st);
	store_stats_locked(f.st, &stats);
	ck_assert_uint_eq(stats.orphans, 1);
	store_ref_locked(store_inode_locked(f.st, ino));
	ck_assert(store_forget_locked(f.st, store_inode_locked(f.st, ino), 1));
	store_unlock(f.st);
	ck_assert_int_eq(do_free(&f, ino), 0);
	ck_assert_int_eq(do_free(&f, ino), -ENOENT);
	ck_assert_int_eq(do_unlink(&f, dir, ROOT, "d", true), 0);
	ck_assert_uint_eq(stat_of(&f, ROOT).st_nlink, 2);
}
END_TEST

START_TEST(rename_moves_and_replaces)
{
	uint64_t d1 = make(&f, ROOT, "d1", S_IFDIR), d2 = make(&f, ROOT, "d2", S_IFDIR);
	uint64_t a = make(&f, d1, "a", S_IFREG), b = make(&f, d1, "b", S_IFREG);
	uint64_t sub = make(&f, d1, "sub", S_IFDIR), cookie, ino = 0;
	char text[256];

	ck_assert_int_eq(do_rename(&f, sub, d1, "sub", d2, "sub2", 0, 0), 0);
	ck_assert_uint_eq(stat_of(&f, d1).st_nlink, 2);
	ck_assert_uint_eq(stat_of(&f, d2).st_nlink, 3);
	ck_assert_uint_eq(lookup(&f, d2, "sub2"), sub);
	read_entry(&f, sub, 1, text, &ino);
	ck_assert_uint_eq(ino, d2);
	ck_assert_int_eq(do_rename(&f, d2, ROOT, "d2", sub, "x", 0, 0), -EINVAL);
	ck_assert_int_eq(do_rename(&f, a, d1, "a", d1, "b", 0, 0), -EINVAL);
	ck_assert_int_eq(do_rename(&f, b, d1, "a", d1, "b", b, 0), -EINVAL);
	cookie = read_entry(&f, d1, 3, text, &ino);
	ck_assert_str_eq(text, "b");
	ck_assert_int_eq(do_rename(&f, a, d1, "a", d1, "b", b, 0), 0);
	ck_assert_uint_eq(read_entry(&f, d1, 2, text, &ino), cookie);
	ck_assert_str_eq(text, "b");
	ck_assert_uint_eq(ino, a);
	ck_assert_uint_eq(stat_of(&f, b).st_nlink, 0);
	ck_assert_int_eq(do_rename(&f, a, d1, "b", ROOT, "d2", d2, 0), -EISDIR);
	ck_assert_int_eq(do_rename(&f, d1, ROOT, "d1", ROOT, "d2", d2, 0), -ENOTEMPTY);
	ck_assert_int_eq(do_rename(&f, sub, d2, "sub2", d1, "b", a, 0), -ENOTDIR);
	ck_assert_int_eq(do_link(&f, a, ROOT, "a2"), 0);
	ck_assert_int_eq(do_rename(&f, a, ROOT, "a2", d1, "b", a, 0), 0);
	ck_assert_uint_eq(stat_of(&f, a).st_nlink, 2);
	ck_assert_int_eq(do_rename(&f, d1, ROOT, "d1", d2, "sub2", sub, 0), 0);
	ck_assert_uint_eq(stat_of(&f, sub).st_nlink, 0);
	ck_assert_uint_eq(stat_of(&f, d2).st_nlink, 3);
	ck_assert_uint_eq(stat_of(&f, ROOT).st_nlink, 3);
}
END_TEST

START_TEST(rename_exchanges)
{
	uint64_t d1 = make(&f, ROOT, "d1", S_IFDIR), d2 = make(&f, d1, "d2", S_IFDIR);
	uint64_t a = make(&f, ROOT, "a", S_IFREG), ino = 0;
	char text[256];

	ck_assert_int_eq(do_rename(&f, a, ROOT, "a", d1, "none", 0, EXCHANGE), -ENOENT);
	ck_assert_int_eq(do_rename(&f, d2, d1, "d2", ROOT, "d1", d1, EXCHANGE), -EINVAL);
	ck_assert_int_eq(do_rename(&f, d1, ROOT, "d1", d1, "d2", d2, EXCHANGE), -EINVAL);
	ck_assert_int_eq(do_rename(&f, a, ROOT, "a", d1, "d2", d2, EXCHANGE), 0);
	ck_assert_uint_eq(lookup(&f, ROOT, "a"), d2);
	ck_assert_uint_eq(lookup(&f, d1, "d2"), a);
	ck_assert_uint_eq(stat_of(&f, ROOT).st_nlink, 4);
	ck_assert_uint_eq(stat_of(&f, d1).st_nlink, 2);
	read_entry(&f, d2, 1, text, &ino);
	ck_assert_uint_eq(ino, ROOT);
}
END_TEST

START_TEST(fallocate_modes)
{
	uint64_t ino = make(&f, ROOT, "a", S_IFREG);
	char buf[8];

	ck_assert_int_eq(do_write(&f, ino, 0, "abcdefgh", 8), 0);
	ck_assert_int_eq(do_fallocate(&f, ino, FALLOC_FL_KEEP_SIZE, 0, 100000), 0);
	ck_assert_int_eq(stat_of(&f, ino).st_size, 8);
	ck_assert_int_eq(do_fallocate(&f, ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 3),
			 0);
	ck_assert_uint_eq(read_value(&f, ino, 0, buf, 8), 8);
	ck_assert_mem_eq(buf, "ab\0\0\0fgh", 8);
	ck_assert_int_eq(do_fallocate(&f, ino, FALLOC_FL_ZERO_RANGE, 6, 200000), 0);
	ck_assert_int_eq(stat_of(&f, ino).st_size, 200006);
	ck_assert_uint_eq(read_value(&f, ino, 0, buf, 8), 8);
	ck_assert_mem_eq(buf, "ab\0\0\0f\0\0", 8);
	ck_assert_int_eq(do_fallocate(&f, ino, 0, 200000, 100000), 0);
	ck_assert_int_eq(stat_of(&f, ino).st_size, 300000);
	ck_assert_int_eq(do_fallocate(&f, ino, 0, 0, 0), -EINVAL);
	ck_assert_int_eq(do_fallocate(&f, ino, FALLOC_FL_COLLAPSE_RANGE, 0, 1), -EOPNOTSUPP);
	ck_assert_int_eq(do_fallocate(&f, ROOT, 0, 0, 1), -EISDIR);
	ck_assert_int_eq(do_fallocate(&f, ino, 0, VALUE_SIZE_MAX, 1), -EFBIG);
	ck_assert_int_eq(do_fallocate(&f, ino, 0, 0, ARENA * 2), -ENOSPC);
	ck_assert_int_eq(stat_of(&f, ino).st_size, 300000);
}
END_TEST

START_TEST(copy_ranges)
{
	uint64_t a = make(&f, ROOT, "a", S_IFREG), b = make(&f, ROOT, "b", S_IFREG);
	char buf[8];

	ck_assert_int_eq(do_write(&f, a, 100000, "abcdefgh", 8), 0);
	ck_assert_int_eq(do_copy(&f, a, 99998, b, 5, 10), 0);
	ck_assert_int_eq(stat_of(&f, b).st_size, 15);
	ck_assert_uint_eq(read_value(&f, b, 7, buf, 8), 8);
	ck_assert_mem_eq(buf, "abcdefgh", 8);
	ck_assert_int_eq(do_copy(&f, b, 7, b, 9, 6), 0);
	ck_assert_uint_eq(read_value(&f, b, 7, buf, 8), 8);
	ck_assert_mem_eq(buf, "ababcdef", 8);
	ck_assert_int_eq(do_copy(&f, a, 100000, b, 0, 9), -EINVAL);
	ck_assert_int_eq(do_copy(&f, ROOT, 0, b, 0, 1), -EISDIR);
	ck_assert_int_eq(do_copy(&f, a, 0, b, 0, RECORD_DATA_MAX + 1), -EINVAL);
}
END_TEST

START_TEST(xattrs)
{
	uint64_t ino = make(&f, ROOT, "a", S_IFREG);
	const struct inode *in;
	char buf[64];

	ck_assert_int_eq(do_setxattr(&f, ino, "user.one", "1", 1), 0);
	ck_assert_int_eq(do_setxattr(&f, ino, "user.two", "22", 2), 0);
	ck_assert_int_eq(do_setxattr(&f, ino, "user.one", "", 0), 0);
	ck_assert_int_eq(do_removexattr(&f, ino, "user.none"), -ENODATA);
	store_lock(f.st);
	in = store_inode_locked(f.st, ino);
	ck_assert_int_eq(store_listxattr_locked(in, true, NULL, 0), 18);
	ck_assert_int_eq(store_listxattr_locked(in, true, buf, 17), -ERANGE);
	ck_assert_int_eq(store_listxattr_locked(in, true, buf, sizeof(buf)), 18);
	ck_assert_mem_eq(buf, "user.two\0user.one", 18);
	ck_assert_int_eq(store_getxattr_locked(in, "user.two", buf, 1), -ERANGE);
	ck_assert_int_eq(store_getxattr_locked(in, "user.two", buf, sizeof(buf)), 2);
	ck_assert_int_eq(store_getxattr_locked(in, "user.one", buf, sizeof(buf)), 0);
	ck_assert_int_eq(store_getxattr_locked(in, "user.x", buf, 0), -ENODATA);
	store_unlock(f.st);
	ck_assert_int_eq(do_removexattr(&f, ino, "user.two"), 0);
	ck_assert_int_eq(do_removexattr(&f, ino, "user.one"), 0);
	ck_assert_int_eq(do_setxattr(&f, 99, "user.one", "", 0), -ENOENT);
}
END_TEST

/* Lists 100 000 entries while every other one is deleted around the reader and new ones come. */
START_TEST(listing_is_stable_while_it_changes)
{
	enum { COUNT = 100000 };
	uint64_t dir = make(&f, ROOT, "d", S_IFDIR), cookie = 2, ino, first;
	uint8_t *seen = calloc(COUNT, 1);
	unsigned listed = 0;
	char name[32], text[256];

	first = fixture_next_ino(&f);
	for (unsigned i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "k%06u", i);
		make(&f, dir, name, S_IFREG);
	}
	while ((cookie = read_entry(&f, dir, cookie, text, &ino)) != 0) {
		unsigned i;

		if (text[0] != 'k')
			continue;
		i = (unsigned)strtoul(text + 1, NULL, 10);
		ck_assert_uint_eq(seen[i], 0);
		seen[i] = 1;
		listed++;
		ck_assert_int_eq(do_unlink(&f, ino, dir, text, false), 0);
		ck_assert_int_eq(do_free(&f, ino), 0);
		if (i % 1000 == 0) {
			snprintf(name, sizeof(name), "new%u", i);
			make(&f, dir, name, S_IFREG);
		}
		if (i + 1 < COUNT && i % 10 == 0) { /* gone before the reader comes */
			snprintf(name, sizeof(name), "k%06u", i + 1);
			ck_assert_int_eq(do_unlink(&f, first + i + 1, dir, name, false), 0);
			seen[i + 1] = 1;
		}
	}
	ck_assert_uint_eq(listed, COUNT - COUNT / 10);
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert_uint_eq(seen[i], 1);
	free(seen);
}
END_TEST

/* A walk in steps misses nothing that is there all the while, though the table
 * grows between them. */
START_TEST(walk_sees_all_that_is_known)
{
	static uint8_t seen[6000];
	uint64_t inos[STORE_WALK_INODES];
	struct store_walk w = { 0 };
	unsigned count, made = 0, rounds = 0;
	uint64_t ino;
	char name[16];
	bool more = true;

	for (; made < 1500; made++) {
		snprintf(name, sizeof(name), "n%u", made);
		ino = make(&f, ROOT, name, S_IFREG | 0644);
		ck_assert_uint_lt(ino, sizeof(seen));
		store_lock(f.st);
		if (made % 3 == 0)
			store_ref_locked(store_inode_locked(f.st, ino));
		seen[ino] = made % 3 == 0 ? 1 : 0;
		store_unlock(f.st);
	}
	while (more) {
		store_lock(f.st);
		more = store_walk_locked(f.st, &w, false, inos, &count);
		store_unlock(f.st);
		for (unsigned i = 0; i < count; i++)
			if (inos[i] != ROOT)
				ck_assert_uint_ne(seen[inos[i]]++, 0);
		/* so many that the table doubles while the walk is in its midst */
		for (unsigned i = 0; rounds < 3 && i < 1000; i++, made++) {
			snprintf(name, sizeof(name), "n%u", made);
			make(&f, ROOT, name, S_IFREG | 0644);
		}
		rounds++;
	}
	for (unsigned i = 0; i < sizeof(seen); i++)
		ck_assert_uint_ne(seen[i], 1);
}
END_TEST

START_TEST(times_before_1970)
{
	static const struct { int64_t ns, sec; long nsec; } cases[] = {
		{ -1, -1, 999999999 },
		{ -315619200LL * 1000000000, -315619200, 0 },
		{ -315619200LL * 1000000000 + 5, -315619200, 5 },
		{ INT64_MIN, -9223372037, 145224192 },
		{ INT64_MAX, 9223372036, 854775807 },
	};
	uint64_t ino = make(&f, ROOT, "old", S_IFREG | 0644);

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct record r = { .opcode = RECORD_SETATTR, .ino = ino, .timestamp_ns = 1 };
		struct stat st;

		r.u.setattr.valid_mask = RECORD_SET_MTIME | RECORD_SET_ATIME;
		r.u.setattr.mtime_ns = r.u.setattr.atime_ns = (uint64_t)cases[i].ns;
		ck_assert_int_eq(fixture_apply(&f, &r), 0);
		st = stat_of(&f, ino);
		ck_assert_int_eq(st.st_mtim.tv_sec, cases[i].sec);
		ck_assert_int_eq(st.st_mtim.tv_nsec, cases[i].nsec);
		ck_assert_int_eq(st.st_atim.tv_sec, cases[i].sec);
	}
}
END_TEST

START_TEST(digest_sees_differences)
{
	struct fixture g;
	uint8_t one[16], two[16];
	uint64_t ino;

	fixture_open(&g, ARENA, 100);
	store_digest(f.st, one);
	store_digest(g.st, two);
	ck_assert_mem_eq(one, two, 16);
	ino = make(&f, ROOT, "a", S_IFREG);
	make(&g, ROOT, "a", S_IFREG);
	store_digest(f.st, one);
	store_digest(g.st, two);
	ck_assert_mem_eq(one, two, 16);
	ck_assert_int_eq(do_write(&f, ino, 0, "a", 1), 0);
	ck_assert_int_eq(do_write(&g, ino, 0, "b", 1), 0);
	store_digest(f.st, one);
	store_digest(g.st, two);
	ck_assert_mem_ne(one, two, 16);
	fixture_close(&g);
}
END_TEST

static uint64_t heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Beside its name and its value, which lies in the arena. Tables that double have just done so at
 * the first number of keys. */
START_TEST(metadata_of_a_key_is_small)
{
	static const unsigned counts[] = { 70000, 120000 };
	uint64_t before = heap_bytes();
	unsigned n = 0;

	for (unsigned i = 0; i < 2; i++) {
		uint64_t a_key;

		for (; n < counts[i]; n++) {
			char name[16];
			uint64_t ino;

			snprintf(name, sizeof(name), "key-%06u", n);
			ino = make(&f, ROOT, name, S_IFREG);
			ck_assert_int_eq(do_write(&f, ino, 0, "a value", 7), 0);
		}
		if (heap_bytes() == before) /* valgrind's is another heap */
			return;
		a_key = (heap_bytes() - before) / n - strlen("key-123456");
		printf("%lu bytes of metadata a key of %u\n", a_key, n);
		ck_assert_msg(a_key <= 256, "%lu bytes a key of %u", a_key, n);
		ck_assert_msg(a_key >= 100, "%lu bytes a key: what is measured?", a_key);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, create_makes_every_type);
	tcase_add_test(t, create_refuses);
	tcase_add_test(t, create_stops_at_inodes_max);
	tcase_add_test(t, write_and_truncate_keep_times_and_bytes);
	tcase_add_test(t, write_drops_set_id_bits);
	tcase_add_test(t, full_arena_leaves_all_as_it_was);
	tcase_add_test(t, setattr_follows_its_mask);
	tcase_add_test(t, links_and_orphans);
	tcase_add_test(t, rename_moves_and_replaces);
	tcase_add_test(t, rename_exchanges);
	tcase_add_test(t, fallocate_modes);
	tcase_add_test(t, copy_ranges);
	tcase_add_test(t, xattrs);
	tcase_add_test(t, listing_is_stable_while_it_changes);
	tcase_add_test(t, walk_sees_all_that_is_known);
	tcase_add_test(t, times_before_1970);
	tcase_add_test(t, digest_sees_differences);
	if (!UNIT_SANITIZED) /* theirs is another heap */
		tcase_add_test(t, metadata_of_a_key_is_small);
	suite_add_tcase(s, t);
	return unit_run(s);
}
