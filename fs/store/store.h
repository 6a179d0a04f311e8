/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_STORE_H
#define KVFS_FS_STORE_H
/*
 * The store: inodes, names and values of a volume in memory. Changed only by store_apply_locked(),
 * which executes one operation record: the primary's handlers, a mirror and recovery all go through
 * it, so all nodes reach the same state from the same records.
 *
 * Threads: one mutex, store_lock()/store_unlock(), held for short, never over a system call.
 * Functions marked _locked, and struct inode and what hangs on it, need it. Lock order: store,
 * commit queue, slab.
 *
 * Readdir cookies: "." is 1, ".." is 2; each name gets its directory's next cookie when it is made
 * and keeps it (also when rename replaces what it names), so offsets survive changes.
 */
#include "fs/store/htable.h"
#include "fs/store/image_obj.h"
#include "fs/store/slab.h"
#include "fs/store/value.h"
#include "log/record.h"

#include <stdbool.h>
#include <sys/stat.h>

#define STORE_ROOT_INO 1

struct store;
struct store_dir;    /* a directory's entries, by cookie */
struct store_xattrs; /* an inode's extended attributes */

/* 136 bytes: a key costs at most 256 bytes of metadata beside its name and value. */
struct inode {
	struct htable_node hash;
	struct image_obj img;
	uint64_t ino;         /* never reused */
	uint64_t lookups;     /* the kernel's references (lookup count); not in the image */
	uint64_t last_lsn;    /* newest record that changed it (relatime updates excepted) */
	uint64_t atime_ns, mtime_ns, ctime_ns; /* since 1970, signed (two's complement) */
	uint32_t mode, uid, gid, rdev;
	uint32_t nlink;       /* 0: unlinked, lives until INODE_FREE */
	uint32_t gen;
	union {
		struct value value;     /* regular files */
		struct {
			struct store_dir *dir;
			uint64_t parent_ino; /* for ".." */
		};                      /* directories */
		char *target;           /* symlinks */
	} u;
	struct store_xattrs *xattrs;  /* NULL: none */
};

struct store_config {
	uint64_t inodes_max;   /* -ENOSPC above it */
};

/* An empty store with a root directory (mode 0755, owner root:root, times 0). NULL: no memory. */
struct store *store_create(struct slab *slab, const struct store_config *cfg);
void store_destroy(struct store *st); /* NULL is fine */
/* Another limit from now on. What is there beyond it stays. */
void store_set_inodes_max(struct store *st, uint64_t inodes_max);

void store_lock(struct store *st);
void store_unlock(struct store *st);

/* The number the next created inode must get (CREATE's key). */
uint64_t store_next_ino_locked(const struct store *st);

/*
 * Executes a record: all or nothing. stage: the WRITE's prepared slots (value_stage), consumed on
 * success; NULL lets it stage here (mirror, recovery). Errors are those of the system call the
 * record stands for: -ENOENT, -EEXIST, -ENOTDIR, -EISDIR, -ENOTEMPTY, -ENOSPC, -EFBIG, -EMLINK,
 * -ENOMEM, -ENODATA (xattr), -EPERM (LINK of a directory), -ENAMETOOLONG, -E2BIG (xattr value),
 * -EOPNOTSUPP (FALLOCATE mode), -EINVAL (rename into own subtree, operation on a wrong file type, a
 * name that is not the key's), -ENXIO (CREATE with a wrong ino). COPY takes at most RECORD_DATA_MAX
 * bytes that lie within the source (-EINVAL). On a mirror any error means divergence.
 */
int store_apply_locked(struct store *st, const struct record *r, struct value_stage *stage);

/* LSN of the last applied record. */
uint64_t store_lsn_locked(const struct store *st);

/* Reading */
struct inode *store_inode_locked(struct store *st, uint64_t ino);  /* NULL: none */
/* The directory ino, for a change of its entries: -ENOENT (also when it was removed), -ENOTDIR. */
int store_parent_locked(struct store *st, uint64_t ino, struct inode **ret_dir);
struct inode *store_lookup_locked(struct store *st, struct inode *dir, const char *name,
				  size_t name_len);
void store_stat_locked(const struct inode *in, struct stat *ret_st);
struct store_dirent {
	uint64_t ino, cookie;
	uint32_t mode;
	uint16_t name_len;
	const char *name;     /* valid under the lock */
};
/* The first entry with a cookie above `after` ("." and ".." included); false: end.
 * Amortised O(log n). */
bool store_readdir_locked(struct store *st, struct inode *dir, uint64_t after,
			  struct store_dirent *ret_e);
/* size 0 asks for the length only. Returns the length or -ENODATA, -ERANGE. */
ssize_t store_getxattr_locked(const struct inode *in, const char *name, void *buf, size_t size);
/* trusted: names that begin so, too, which are for those with CAP_SYS_ADMIN (xattr(7)). */
ssize_t store_listxattr_locked(const struct inode *in, bool trusted, char *buf, size_t size);

/* The kernel's references. forget returns true when the inode is unlinked and now unreferenced: the
 * primary then submits INODE_FREE. */
void store_ref_locked(struct inode *in);
bool store_forget_locked(struct store *st, struct inode *in, uint64_t n);
/* Calls fn for each unlinked inode without kernel references (after recovery). */
void store_each_orphan_locked(struct store *st, void (*fn)(void *ctx, uint64_t ino), void *ctx);

/* A walk over the inodes the kernel refers to (all: over all inodes) in steps of at most
 * STORE_WALK_INODES, between which the lock may be given up: every inode that is there all the
 * while is seen, some maybe twice. */
#define STORE_WALK_INODES 256
struct store_walk {
	size_t bucket, buckets; /* zero to begin */
};
/* False: the walk is over, *ret_count is 0. */
bool store_walk_locked(struct store *st, struct store_walk *w, bool all,
		       uint64_t ret_inos[STORE_WALK_INODES], unsigned *ret_count);

struct store_stats {
	uint64_t inodes, names, orphans, value_bytes;
};
void store_stats_locked(const struct store *st, struct store_stats *ret_stats);

/*
 * A digest of everything users can see and of cookies (XXH3-128 over all objects in inode order):
 * equal on nodes with equal state. Takes long; locks in slices, so the store must be quiet. atime
 * is left out.
 */
void store_digest(struct store *st, uint8_t ret_digest[16]);

#endif
