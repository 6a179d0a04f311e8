/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_STORE_FIXTURE_H
#define KVFS_TESTS_STORE_FIXTURE_H
/* A store with its memory, and one short function per record for tests. Each takes
 * the lock itself. */
#include "fs/store/store.h"

#include <check.h>
#include <string.h>

struct fixture {
	struct region_pool *pool;
	struct slab *slab;
	struct store *st;
	uint64_t lsn, now_ns;
};

static inline void fixture_open(struct fixture *f, uint64_t arena_bytes, uint64_t inodes_max)
{
	struct store_config cfg = { .inodes_max = inodes_max };

	memset(f, 0, sizeof(*f));
	ck_assert_int_eq(region_pool_create(&region_memfd_ops, arena_bytes, 0, &f->pool), 0);
	f->slab = slab_create(f->pool);
	ck_assert_ptr_nonnull(f->slab);
	f->st = store_create(f->slab, &cfg);
	ck_assert_ptr_nonnull(f->st);
	f->now_ns = 1000000000;
}

static inline void fixture_close(struct fixture *f)
{
	store_destroy(f->st);
	slab_destroy(f->slab);
	region_pool_destroy(f->pool);
}

/* Executes r with the next LSN and a later time; LSNs are used up by successes only. */
static inline int fixture_apply(struct fixture *f, struct record *r)
{
	int err;

	r->lsn = f->lsn + 1;
	r->timestamp_ns = f->now_ns + 1000;
	store_lock(f->st);
	err = store_apply_locked(f->st, r, NULL);
	store_unlock(f->st);
	if (!err) {
		f->lsn++;
		f->now_ns += 1000;
	}
	return err;
}

static inline void record_set_name(struct record *r, const char *name)
{
	r->name = name;
	r->name_len = (uint32_t)strlen(name);
}

static inline void record_set_name2(struct record *r, const char *name)
{
	r->name2 = name;
	r->name2_len = (uint32_t)strlen(name);
}

static inline uint64_t fixture_next_ino(struct fixture *f)
{
	uint64_t ino;

	store_lock(f->st);
	ino = store_next_ino_locked(f->st);
	store_unlock(f->st);
	return ino;
}

static inline int do_create_link(struct fixture *f, uint64_t parent, const char *name,
				 uint32_t mode, const char *target)
{
	struct record r = { .opcode = RECORD_CREATE, .ino = fixture_next_ino(f), .gen = 1 };

	r.u.create.parent_ino = parent;
	r.u.create.mode = mode;
	r.u.create.uid = 10;
	r.u.create.gid = 20;
	record_set_name(&r, name);
	if (target)
		record_set_name2(&r, target);
	return fixture_apply(f, &r);
}

static inline int do_create(struct fixture *f, uint64_t parent, const char *name, uint32_t mode)
{
	return do_create_link(f, parent, name, mode, NULL);
}

/* Creates and returns the number. */
static inline uint64_t make(struct fixture *f, uint64_t parent, const char *name, uint32_t mode)
{
	uint64_t ino = fixture_next_ino(f);

	ck_assert_int_eq(do_create(f, parent, name, mode), 0);
	return ino;
}

static inline int do_write(struct fixture *f, uint64_t ino, uint64_t off, const void *data,
			   uint32_t len)
{
	struct record r = { .opcode = RECORD_WRITE, .ino = ino, .data = data, .data_len = len };

	r.u.write.offset = off;
	return fixture_apply(f, &r);
}

static inline int do_truncate(struct fixture *f, uint64_t ino, uint64_t size)
{
	struct record r = { .opcode = RECORD_SETATTR, .ino = ino };

	r.u.setattr.valid_mask = RECORD_SET_SIZE;
	r.u.setattr.size = size;
	return fixture_apply(f, &r);
}

static inline int do_link(struct fixture *f, uint64_t ino, uint64_t parent, const char *name)
{
	struct record r = { .opcode = RECORD_LINK, .ino = ino };

	r.u.link.parent_ino = parent;
	record_set_name(&r, name);
	return fixture_apply(f, &r);
}

static inline int do_unlink(struct fixture *f, uint64_t ino, uint64_t parent, const char *name,
			    bool is_dir)
{
	struct record r = { .opcode = RECORD_UNLINK, .ino = ino };

	r.u.unlink.parent_ino = parent;
	r.u.unlink.is_dir = is_dir;
	record_set_name(&r, name);
	return fixture_apply(f, &r);
}

static inline int do_rename(struct fixture *f, uint64_t ino, uint64_t from, const char *name,
			    uint64_t to, const char *name2, uint64_t target, uint32_t flags)
{
	struct record r = { .opcode = RECORD_RENAME, .ino = ino };

	r.u.rename.old_parent_ino = from;
	r.u.rename.new_parent_ino = to;
	r.u.rename.target_ino = target;
	r.u.rename.flags = flags;
	record_set_name(&r, name);
	record_set_name2(&r, name2);
	return fixture_apply(f, &r);
}

static inline int do_fallocate(struct fixture *f, uint64_t ino, uint32_t mode, uint64_t off,
			       uint64_t len)
{
	struct record r = { .opcode = RECORD_FALLOCATE, .ino = ino };

	r.u.fallocate.mode = mode;
	r.u.fallocate.offset = off;
	r.u.fallocate.length = len;
	return fixture_apply(f, &r);
}

static inline int do_copy(struct fixture *f, uint64_t src, uint64_t src_off, uint64_t dst,
			  uint64_t dst_off, uint64_t len)
{
	struct record r = { .opcode = RECORD_COPY, .ino = dst };

	r.u.copy.src_ino = src;
	r.u.copy.src_offset = src_off;
	r.u.copy.dst_offset = dst_off;
	r.u.copy.length = len;
	return fixture_apply(f, &r);
}

static inline int do_setxattr(struct fixture *f, uint64_t ino, const char *name, const void *value,
			      uint32_t len)
{
	struct record r = { .opcode = RECORD_SETXATTR, .ino = ino, .data = value, .data_len = len };

	record_set_name(&r, name);
	return fixture_apply(f, &r);
}

static inline int do_removexattr(struct fixture *f, uint64_t ino, const char *name)
{
	struct record r = { .opcode = RECORD_REMOVEXATTR, .ino = ino };

	record_set_name(&r, name);
	return fixture_apply(f, &r);
}

static inline int do_free(struct fixture *f, uint64_t ino)
{
	struct record r = { .opcode = RECORD_INODE_FREE, .ino = ino };

	return fixture_apply(f, &r);
}

static inline struct stat stat_of(struct fixture *f, uint64_t ino)
{
	struct inode *in;
	struct stat st;

	store_lock(f->st);
	in = store_inode_locked(f->st, ino);
	ck_assert_ptr_nonnull(in);
	store_stat_locked(in, &st);
	store_unlock(f->st);
	return st;
}

static inline uint64_t lookup(struct fixture *f, uint64_t parent, const char *name)
{
	struct inode *dir, *in;
	uint64_t ino;

	store_lock(f->st);
	dir = store_inode_locked(f->st, parent);
	ck_assert_ptr_nonnull(dir);
	in = store_lookup_locked(f->st, dir, name, strlen(name));
	ino = in ? in->ino : 0;
	store_unlock(f->st);
	return ino;
}

/* Reads [off, off+len) into buf; the number of bytes. */
static inline uint64_t read_value(struct fixture *f, uint64_t ino, uint64_t off, void *buf,
				  uint64_t len)
{
	uint8_t *p = buf;
	struct inode *in;
	uint64_t total = 0;

	store_lock(f->st);
	in = store_inode_locked(f->st, ino);
	while (total < len) {
		struct value_ref ref;
		uint64_t got = 0;

		if (value_refs(&in->u.value, off + total, len - total, &ref, 1, &got) == 0)
			break;
		if (ref.slot)
			memcpy(p + total, ref.slot->data + ref.off, ref.len);
		else
			memset(p + total, 0, ref.len);
		value_ref_put(f->slab, &ref);
		total += got;
	}
	store_unlock(f->st);
	return total;
}

/* The next entry's cookie, its name in text; 0: end. */
static inline uint64_t read_entry(struct fixture *f, uint64_t dir, uint64_t after, char text[256],
				  uint64_t *ret_ino)
{
	struct store_dirent e;
	uint64_t cookie = 0;

	store_lock(f->st);
	if (store_readdir_locked(f->st, store_inode_locked(f->st, dir), after, &e)) {
		memcpy(text, e.name, e.name_len);
		text[e.name_len] = '\0';
		*ret_ino = e.ino;
		cookie = e.cookie;
	}
	store_unlock(f->st);
	return cookie;
}

#endif
