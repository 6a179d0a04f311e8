/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_STORE_INTERNAL_H
#define KVFS_FS_STORE_INTERNAL_H
/*
 * What the store's files and the image share. Everything here is protected by the store's mutex.
 *
 * store.c life cycle, inodes, reading · store_names.c names and directories · store_apply.c,
 * store_apply_names.c, store_apply_data.c records · store_xattr.c · store_digest.c · image*.c
 * checkpoints
 */
#include "fs/store/image.h"
#include "fs/store/store.h"

#include <pthread.h>

/* A name in a directory. 57 bytes before the name itself. */
struct name {
	struct htable_node hash;
	struct image_obj img;
	uint64_t parent_ino;
	uint64_t cookie;
	uint64_t ino;
	uint8_t len;
	char text[]; /* no NUL */
};

/*
 * A directory's entries in cookie order. An entry is a struct name pointer, or, where the name is
 * gone, its cookie << 1 | 1, so that the order can still be searched. Compacted when over half are
 * gone.
 */
struct store_dir {
	uint64_t *entries;
	uint32_t used, cap;   /* of entries */
	uint32_t live;        /* names */
	uint64_t next_cookie;
};
#define STORE_COOKIE_DOT 1
#define STORE_COOKIE_DOTDOT 2
#define STORE_COOKIE_FIRST 3

struct store {
	pthread_mutex_t lock;
	struct slab *slab;
	struct store_config cfg;
	struct image *image;
	struct htable inodes, names;
	uint64_t lsn, next_ino;
	uint64_t orphans, value_bytes;
};

/* An extended-attribute set. Immutable: a change makes a new one, so a checkpoint can hold
 * on to it. */
struct store_xattrs {
	_Atomic uint32_t refs;
	uint32_t len;
	uint8_t data[]; /* per attribute: name_len (1), value_len (4, big-endian), name, value */
};
#define STORE_XATTRS_BYTES_MAX (512U << 10)

/* store.c */
/* with an empty directory, if it is one */
struct inode *store_inode_alloc(uint64_t ino, uint32_t mode);
void store_inode_add_locked(struct store *st, struct inode *in);
/* Frees value, directory, target and attributes; the struct stays. */
void store_inode_clear_locked(struct store *st, struct inode *in);
/* Out of the table, out of the image, freed. */
void store_inode_drop_locked(struct store *st, struct inode *in);

/* store_names.c */
uint64_t store_name_hash(uint64_t parent_ino, const char *text, size_t len);
struct name *store_name_alloc(uint64_t parent_ino, const char *text, size_t len);
void store_name_add_locked(struct store *st, struct name *n);    /* to the table only */
void store_name_remove_locked(struct store *st, struct name *n); /* from the table only */
struct name *store_name_find_locked(struct store *st, uint64_t parent_ino, const char *text,
				    size_t len);
struct store_dir *store_dir_alloc(void);
void store_dir_free(struct store_dir *d);
int store_dir_reserve(struct store_dir *d);                /* room for one more: -ENOMEM */
/* after a reserve; the name has its cookie */
void store_dir_append(struct store_dir *d, struct name *n);
void store_dir_remove(struct store_dir *d, const struct name *n);
/* Brings entries appended in any order (none gone) into cookie order. False: two have
 * the same cookie. */
bool store_dir_sort(struct store_dir *d);
/* First living entry above cookie, NULL: none. */
struct name *store_dir_next(const struct store_dir *d, uint64_t cookie);

/* store_xattr.c */
int store_setxattr_locked(struct store *st, struct inode *in, const struct record *r);
int store_removexattr_locked(struct store *st, struct inode *in, const struct record *r);
void store_xattrs_put(struct store_xattrs *x); /* NULL is fine; any thread */
/* Checks a set read from a checkpoint: -EBADMSG. */
int store_xattrs_check(const void *data, size_t len);
struct store_xattrs *store_xattrs_from(const void *data, size_t len); /* NULL: no memory */

/* store_apply.c: shared by the files with one function per opcode */
/* ctime, last_lsn */
void store_touch_change(struct store *st, struct inode *in, const struct record *r);
void store_touch_modify(struct store *st, struct inode *in, const struct record *r); /* and mtime */

/* store_apply_names.c */
int store_apply_create(struct store *st, const struct record *r);
int store_apply_link(struct store *st, const struct record *r);
int store_apply_unlink(struct store *st, const struct record *r);
int store_apply_rename(struct store *st, const struct record *r);

/* store_apply_data.c */
int store_apply_write(struct store *st, const struct record *r, struct value_stage *stage);
int store_apply_fallocate(struct store *st, const struct record *r);
int store_apply_copy(struct store *st, const struct record *r);
/* Sets the size of a regular file; times are the caller's. */
int store_truncate_locked(struct store *st, struct inode *in, uint64_t size);
int store_need_regular(const struct inode *in); /* 0, -EISDIR, -EINVAL */

#endif
