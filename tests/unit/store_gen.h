/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_TESTS_STORE_GEN_H
#define KVFS_TESTS_STORE_GEN_H
/*
 * Random operations of every opcode on a store. Those that succeed are kept, so that another store
 * can be brought to the state at any LSN by replaying them. The seed decides everything.
 */
#include "tests/unit/store_fixture.h"

#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>

struct gen_record {
	struct record r;
	uint8_t *own; /* what name, name2 and data point into */
};

struct gen {
	struct fixture *f;
	uint64_t state;
	struct gen_record *log;   /* log[i] has LSN i + 1 */
	size_t count, cap;
	unsigned done[RECORD_OPCODE_END], refused;
	uint64_t large_max;       /* largest offset of writes */
	char name[16], name2[16];
	uint8_t data[200000];
};

static inline uint64_t gen_random(struct gen *g, uint64_t below)
{
	g->state ^= g->state << 13;
	g->state ^= g->state >> 7;
	g->state ^= g->state << 17;
	return (g->state * 0x2545f4914f6cdd1dULL >> 16) % below;
}

static inline struct gen *gen_create(struct fixture *f, uint64_t seed)
{
	struct gen *g = calloc(1, sizeof(*g));

	ck_assert_ptr_nonnull(g);
	g->f = f;
	g->state = seed * 0x9e3779b97f4a7c15ULL | 1;
	g->large_max = 400000;
	for (size_t i = 0; i < sizeof(g->data); i++)
		g->data[i] = (uint8_t)gen_random(g, 256);
	return g;
}

static inline void gen_destroy(struct gen *g)
{
	for (size_t i = 0; i < g->count; i++)
		free(g->log[i].own);
	free(g->log);
	free(g);
}

static inline void gen_keep(struct gen *g, const struct record *r)
{
	struct gen_record *k;
	uint8_t *p;

	if (g->count == g->cap) {
		g->cap = g->cap * 2 + 1024;
		g->log = realloc(g->log, g->cap * sizeof(*g->log));
		ck_assert_ptr_nonnull(g->log);
	}
	k = &g->log[g->count++];
	k->r = *r;
	p = k->own = malloc(r->name_len + r->name2_len + r->data_len + 1);
	ck_assert_ptr_nonnull(p);
	if (r->name_len)
		k->r.name = memcpy(p, r->name, r->name_len);
	p += r->name_len;
	if (r->name2_len)
		k->r.name2 = memcpy(p, r->name2, r->name2_len);
	p += r->name2_len;
	if (r->data_len)
		k->r.data = memcpy(p, r->data, r->data_len);
	ck_assert_uint_eq(k->r.lsn, g->count);
}

/* A random inode; mode 0: of any type. 0: found none. */
static inline uint64_t gen_inode(struct gen *g, uint32_t type)
{
	uint64_t found = type == S_IFDIR ? STORE_ROOT_INO : 0;

	store_lock(g->f->st);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t next = store_next_ino_locked(g->f->st);
		uint64_t range = gen_random(g, 2) && next > 300 ? 300 : next;
		const struct inode *in =
			store_inode_locked(g->f->st, next - 1 - gen_random(g, range));

		if (in && (!type || (in->mode & S_IFMT) == type) &&
		    (type != S_IFDIR || in->nlink)) {
			found = in->ino;
			break;
		}
	}
	store_unlock(g->f->st);
	return found;
}

/* A random entry of a directory; its name goes to text, what it refers to is returned. */
static inline uint64_t gen_entry(struct gen *g, uint64_t dir, char *text)
{
	struct store_dirent e;
	struct inode *in;
	uint64_t ino = 0;

	store_lock(g->f->st);
	in = store_inode_locked(g->f->st, dir);
	if (store_readdir_locked(g->f->st, in, 2 + gen_random(g, 80), &e) ||
	    store_readdir_locked(g->f->st, in, 2, &e)) {
		memcpy(text, e.name, e.name_len);
		text[e.name_len] = '\0';
		ino = e.ino;
	}
	store_unlock(g->f->st);
	return ino;
}

static inline bool gen_is_dir(struct gen *g, uint64_t ino)
{
	const struct inode *in;
	bool dir;

	store_lock(g->f->st);
	in = store_inode_locked(g->f->st, ino);
	dir = in && S_ISDIR(in->mode);
	store_unlock(g->f->st);
	return dir;
}

static inline void gen_any_name(struct gen *g, char *text)
{
	snprintf(text, 16, "n%u", (unsigned)gen_random(g, 60));
}

static inline void gen_create_record(struct gen *g, struct record *r)
{
	static const uint32_t types[] = { S_IFREG, S_IFREG, S_IFREG, S_IFREG,
					  S_IFDIR, S_IFLNK, S_IFIFO, S_IFCHR };

	r->opcode = RECORD_CREATE;
	r->ino = fixture_next_ino(g->f);
	r->gen = 1;
	r->u.create.parent_ino = gen_inode(g, S_IFDIR);
	r->u.create.mode = types[gen_random(g, 8)] | (uint32_t)gen_random(g, 01000);
	r->u.create.uid = (uint32_t)gen_random(g, 3);
	r->u.create.rdev = S_ISCHR(r->u.create.mode) ? 0x103 : 0;
	gen_any_name(g, g->name);
	record_set_name(r, g->name);
	if (S_ISLNK(r->u.create.mode)) {
		gen_any_name(g, g->name2);
		record_set_name2(r, g->name2);
	}
}

static inline void gen_write_record(struct gen *g, struct record *r)
{
	uint64_t len = gen_random(g, 3) ? gen_random(g, 3000) : gen_random(g, 150000);

	r->opcode = RECORD_WRITE;
	r->ino = gen_inode(g, S_IFREG);
	r->u.write.offset = gen_random(g, 2) ? gen_random(g, 3000) : gen_random(g, g->large_max);
	r->u.write.clear_suid = gen_random(g, 2);
	r->data = g->data + gen_random(g, 1000);
	r->data_len = (uint32_t)len + 1;
}

static inline void gen_setattr_record(struct gen *g, struct record *r)
{
	r->opcode = RECORD_SETATTR;
	r->ino = gen_inode(g, gen_random(g, 2) ? S_IFREG : 0);
	r->u.setattr.valid_mask = (uint32_t)gen_random(g, 128);
	if (gen_random(g, 8) == 0)
		r->u.setattr.valid_mask = RECORD_SET_ATIME_ONLY;
	r->u.setattr.mode = (uint32_t)gen_random(g, 010000);
	r->u.setattr.uid = (uint32_t)gen_random(g, 9);
	r->u.setattr.gid = (uint32_t)gen_random(g, 9);
	r->u.setattr.size = gen_random(g, 3) ? gen_random(g, 5000) : gen_random(g, g->large_max);
	r->u.setattr.atime_ns = gen_random(g, 1 << 30);
	r->u.setattr.mtime_ns = gen_random(g, 1 << 30);
	r->u.setattr.ctime_ns = gen_random(g, 1 << 30);
}

static inline void gen_unlink_record(struct gen *g, struct record *r)
{
	r->opcode = RECORD_UNLINK;
	r->u.unlink.parent_ino = gen_inode(g, S_IFDIR);
	r->ino = gen_entry(g, r->u.unlink.parent_ino, g->name);
	r->u.unlink.is_dir = gen_is_dir(g, r->ino);
	record_set_name(r, g->name);
}

static inline void gen_rename_record(struct gen *g, struct record *r)
{
	r->opcode = RECORD_RENAME;
	r->u.rename.old_parent_ino = gen_inode(g, S_IFDIR);
	r->u.rename.new_parent_ino = gen_inode(g, S_IFDIR);
	r->ino = gen_entry(g, r->u.rename.old_parent_ino, g->name);
	if (gen_random(g, 2))
		gen_any_name(g, g->name2);
	else if (!gen_entry(g, r->u.rename.new_parent_ino, g->name2))
		gen_any_name(g, g->name2);
	r->u.rename.target_ino = lookup(g->f, r->u.rename.new_parent_ino, g->name2);
	r->u.rename.flags = r->u.rename.target_ino && gen_random(g, 2) ? 2 : 0;
	record_set_name(r, g->name);
	record_set_name2(r, g->name2);
}

static inline void gen_fallocate_record(struct gen *g, struct record *r)
{
	static const uint32_t modes[] = { 0, FALLOC_FL_KEEP_SIZE,
					  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					  FALLOC_FL_ZERO_RANGE,
					  FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };

	r->opcode = RECORD_FALLOCATE;
	r->ino = gen_inode(g, S_IFREG);
	r->u.fallocate.mode = modes[gen_random(g, 5)];
	r->u.fallocate.offset = gen_random(g, 2) ? gen_random(g, 3000) :
						   gen_random(g, g->large_max);
	r->u.fallocate.length =
		1 + (gen_random(g, 2) ? gen_random(g, 3000) : gen_random(g, 200000));
}

static inline void gen_copy_record(struct gen *g, struct record *r)
{
	uint64_t size;

	r->opcode = RECORD_COPY;
	r->ino = gen_inode(g, S_IFREG);
	r->u.copy.src_ino = gen_inode(g, S_IFREG);
	size = r->u.copy.src_ino ? (uint64_t)stat_of(g->f, r->u.copy.src_ino).st_size : 0;
	r->u.copy.src_offset = gen_random(g, size + 1);
	r->u.copy.length = size - r->u.copy.src_offset;
	r->u.copy.dst_offset = gen_random(g, 100000);
}

static inline void gen_xattr_record(struct gen *g, struct record *r)
{
	r->opcode = gen_random(g, 2) ? RECORD_SETXATTR : RECORD_REMOVEXATTR;
	r->ino = gen_inode(g, 0);
	snprintf(g->name, sizeof(g->name), "user.%u", (unsigned)gen_random(g, 3));
	record_set_name(r, g->name);
	if (r->opcode == RECORD_SETXATTR) {
		r->data = g->data;
		r->data_len = (uint32_t)gen_random(g, 300);
	}
}

static inline void gen_note_orphan(void *ctx, uint64_t ino)
{
	uint64_t *keep = ctx;

	if (*keep == 0 || ino % 3 == 0)
		*keep = ino;
}

static inline void gen_link_or_free_record(struct gen *g, struct record *r)
{
	if (gen_random(g, 2)) {
		r->opcode = RECORD_LINK;
		r->ino = gen_inode(g, gen_random(g, 2) ? S_IFREG : S_IFLNK);
		r->u.link.parent_ino = gen_inode(g, S_IFDIR);
		gen_any_name(g, g->name);
		record_set_name(r, g->name);
		return;
	}
	r->opcode = RECORD_INODE_FREE;
	store_lock(g->f->st);
	store_each_orphan_locked(g->f->st, gen_note_orphan, &r->ino);
	store_unlock(g->f->st);
}

/* One random operation; it may be refused. */
static inline void gen_step(struct gen *g)
{
	static void (*const makers[])(struct gen * g, struct record * r) = {
		gen_create_record,  gen_create_record,	     gen_create_record,
		gen_write_record,   gen_write_record,	     gen_write_record,
		gen_setattr_record, gen_unlink_record,	     gen_unlink_record,
		gen_rename_record,  gen_fallocate_record,    gen_copy_record,
		gen_xattr_record,   gen_link_or_free_record, gen_link_or_free_record,
	};
	struct record r = { 0 };

	if (gen_random(g, 100) == 0)
		r.opcode = RECORD_NOOP;
	else
		makers[gen_random(g, sizeof(makers) / sizeof(makers[0]))](g, &r);
	if (fixture_apply(g->f, &r)) {
		g->refused++;
		return;
	}
	g->done[r.opcode]++;
	gen_keep(g, &r);
}

/* Brings another store, which is at any earlier LSN, to lsn. */
static inline void gen_replay(struct gen *g, struct fixture *to, uint64_t lsn)
{
	store_lock(to->st);
	for (uint64_t at = store_lsn_locked(to->st); at < lsn; at++)
		ck_assert_int_eq(store_apply_locked(to->st, &g->log[at].r, NULL), 0);
	store_unlock(to->st);
}

#endif
