/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_VALUE_H
#define KVFS_FS_VALUE_H
/*
 * A value: a file's bytes, in chunks of VALUE_CHUNK_BYTES. Up to one chunk it is a single slot
 * sized to fit; above that a radix tree of full-size chunks (the last may be smaller). A missing
 * chunk is a hole and reads as zeros. Bytes of a slot at and beyond the value's size are undefined:
 * growing zeroes them.
 *
 * Writing is in two steps, so that the bulk of the copying happens outside the store's lock:
 * value_stage copies the caller's bytes into fresh slots where a chunk is wholly replaced;
 * value_write (under the lock) installs them and merges the partial edges.
 *
 * Threads: a value belongs to its inode: every function but value_stage needs the store's lock.
 */
#include "fs/store/image_obj.h"
#include "fs/store/slab.h"

#include <sys/uio.h>

#define VALUE_CHUNK_BYTES 65536
#define VALUE_SIZE_MAX (1ULL << 43)

struct value_node;

/* A chunk of a value of more than one chunk: its own object in checkpoints. */
struct value_chunk {
	struct slot *slot;
	uint64_t idx;
	uint64_t ino; /* whose chunk it is: set and used by the image, zero until then */
	struct image_obj img;
	/* the value's own note: VALUE_CHUNK_BYTES of zeros, set aside by value_reserve */
	bool blank;
};

struct value {
	uint64_t size;
	union {
		struct slot *slot;       /* height 0: the only chunk, or NULL */
		/* height >= 1: radix tree of struct value_chunk, NULL: no chunk */
		struct value_node *root;
	} u;
	uint32_t chunks;                 /* slots held */
	uint8_t height;
};

/* A reference to bytes of a value that stays valid and unchanged until put: for replies, records in
 * flight, checkpoints. slot NULL: len zero bytes (a hole). */
struct value_ref {
	struct slot *slot;
	uint32_t off;
	uint32_t len;
};

struct value_stage; /* slots prepared for one write */

/*
 * Prepares a write of len (1 .. RECORD_DATA_MAX) bytes at off from src into a value of old_size
 * bytes (a hint: a stale one only costs a copy). crc32c(0, src, len) goes to *ret_crc. Takes no
 * lock.
 * A full arena is no error here: value_write may find room in the chunks that are there.
 * -ENOMEM, -EFBIG (off + len > VALUE_SIZE_MAX), -EINVAL (len).
 */
int value_stage(struct slab *s, uint64_t off, const void *src, size_t len, uint64_t old_size,
		struct value_stage **ret_stage, uint32_t *ret_crc);
void value_stage_free(struct slab *s, struct value_stage *stage); /* NULL is fine */

/*
 * How the image (checkpoint) sees changes. c NULL means the single slot of a height-0 value, which
 * is part of its inode's item. before: c (or the inline slot) is about to change or go: the image
 * may take a reference to the slot (so that the writer copies). after: it is new or has changed.
 * gone: c leaves; it is freed by the value after the call. Growing from height 0 to 1 is
 * before(NULL), then after(c) for chunk 0 when there was a slot (the same one, if it was large
 * enough). A chunk whose valid bytes change because the size does is before and after, too. All
 * befores of an operation come first, with the old size; one that then fails for lack of memory has
 * had befores only. In after the new size is set.
 */
struct value_hook {
	void (*before)(void *ctx, struct value_chunk *c);
	void (*after)(void *ctx, struct value_chunk *c);
	void (*gone)(void *ctx, struct value_chunk *c);
	void *ctx;
};

/* Installs the stage; src must still be readable (partial edges are copied from it). All or
 * nothing:
 * -ENOSPC, -ENOMEM leave v unchanged. The caller frees the stage either way. */
int value_write(struct slab *s, struct value *v, const struct value_hook *h,
		struct value_stage *stage, const void *src);

/* Shrinks (frees chunks; never fails for lack of memory) or grows (a hole). -EFBIG; growing may
 * -ENOSPC when the last chunk must be copied to zero its tail. */
int value_truncate(struct slab *s, struct value *v, const struct value_hook *h, uint64_t size);

/* Zeroes [off, off+len): whole chunks become holes, partial ones are cleared. Size unchanged.
 * -ENOSPC when a partial one must be copied. */
int value_punch(struct slab *s, struct value *v, const struct value_hook *h, uint64_t off,
		uint64_t len);

/* Allocates zeroed chunks for the holes of [off, off+len), also beyond the size when keep_size;
 * else the size grows to off+len if it is less. All or nothing: -ENOSPC, -ENOMEM, -EFBIG. */
int value_reserve(struct slab *s, struct value *v, const struct value_hook *h, uint64_t off,
		  uint64_t len, bool keep_size);

/* References to [off, off+len) clipped at the size, at most max refs (one a chunk); returns their
 * number, and the bytes they cover in *ret_len. */
int value_refs(const struct value *v, uint64_t off, uint64_t len, struct value_ref *refs, int max,
	       uint64_t *ret_len);
void value_ref_put(struct slab *s, const struct value_ref *ref);

/* SEEK_DATA / SEEK_HOLE as lseek(2): -ENXIO. */
int value_seek(const struct value *v, uint64_t off, bool hole, uint64_t *ret_off);

/* Valid bytes of chunk idx under the value's size, 0 .. VALUE_CHUNK_BYTES. */
uint32_t value_chunk_valid(const struct value *v, uint64_t idx);
/* Installs a chunk while loading a checkpoint (takes over the reference to slot). For idx 0 of a
 * value that stays at height 0 inline_slot is true. Replaces what is there. *ret_c is NULL for
 * inline. -ENOMEM: the caller keeps the slot. */
int value_load_chunk(struct slab *s, struct value *v, uint64_t idx, struct slot *slot,
		     bool inline_slot, struct value_chunk **ret_c);
struct value_chunk *value_find_chunk(const struct value *v, uint64_t idx);
/* Removes chunks first <= idx <= last while loading (range tombstones); no hooks.
 * Height 0: nothing. */
void value_unload_chunks(struct slab *s, struct value *v, uint64_t first, uint64_t last);
/* Calls fn for each chunk present, in order; non-zero ends it. Height 0: not called. */
int value_each_chunk(const struct value *v, int (*fn)(void *ctx, struct value_chunk *c), void *ctx);

void value_clear(struct slab *s, struct value *v); /* frees everything without hooks */

#endif
