/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_CKPT_H
#define KVFS_LOG_CKPT_H
/*
 * Checkpoint files: numbered segments of checksummed items and one manifest per checkpoint, in the
 * volume's directory "ckpt". What an item means is the store's affair (fs/store/image.c); here
 * it is a type and bytes.
 *
 * Segments are immutable and numbered upwards. A checkpoint is the ordered run of segments
 * [first_seg, last_seg] its manifest names: newer items replace older ones of the same identity,
 * and deletions are items too (tombstones). Each checkpoint adds segments with what changed; old
 * garbage leaves because the store re-adds what still lives in the oldest segments and then asks
 * for a higher first_seg. So the bytes written grow with what changed, and the files stay within
 * about twice the live bytes. The two newest manifests and all segments that either names are kept.
 *
 * Segments are written by io_uring from registered, aligned buffers, O_DIRECT where the filesystem
 * has it, pwrite where io_uring is forbidden. Manifest: written beside, fsynced, renamed, directory
 * fsynced.
 *
 * Threads: one writer at a time; a reader works on files only.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define CKPT_ITEM_BYTES_MAX (1U << 20) /* largest payload of one item */
#define CKPT_SEG_BYTES (64ULL << 20)   /* a segment is closed at about this size */

struct ckpt;
struct ckpt_hooks; /* ckpt_io.h */
struct ckpt_writer;

struct ckpt_info {
	uint64_t number;    /* of the checkpoint, from 1 */
	uint64_t lsn;       /* the image holds exactly the records up to here */
	uint64_t epoch;
	uint64_t first_seg, last_seg; /* last < first: no segments (empty volume) */
	uint64_t bytes;     /* of all its segments */
	uint64_t time_ns;   /* when it was committed */
	uint64_t next_ino;  /* opaque to ckpt, kept for the store */
};

struct ckpt_stats { /* of the last or running checkpoint, and since open */
	uint64_t written_bytes, duration_ns, total_written_bytes, total_count;
	bool direct_io, io_uring;
};

/* Opens (and with create makes) the directory "ckpt" in dirfd. -ENOENT, -EIO, ... */
int ckpt_open(int dirfd, bool create, const uint8_t uuid[16], struct ckpt **ret_ckpt);
void ckpt_close(struct ckpt *c);

/* Copies hooks (ops NULL: the system's). Before any other call on c. */
void ckpt_set_hooks(struct ckpt *c, const struct ckpt_hooks *hooks);

/*
 * The checkpoints on media with a valid manifest, newest first (at most two). Returns the count, or
 * -EPROTONOSUPPORT (written by a newer kvfs), -ENOMEM, -EMFILE. Damaged manifests are passed over.
 */
int ckpt_list(struct ckpt *c, struct ckpt_info ret_infos[2]);

/*
 * Reads the checkpoint info, calling item for each item in write order with its segment number;
 * item's non-zero return ends the walk; without item it is only verified. data is not aligned.
 * progress, if not NULL, is called now and then with bytes done and bytes in all. -EBADMSG: a
 * segment is missing, short or fails its checksum; *ret_bad_seg (may be NULL) names it; items of
 * earlier blocks have been handed on by then. -ENOENT: no such checkpoint any more. -EIO. A
 * checkpoint found damaged here is not built upon: the next ckpt_begin goes on from the other one
 * and removes it.
 */
struct ckpt_read_ops {
	int (*item)(void *ctx, uint64_t seg, uint8_t type, const void *data, size_t len);
	void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
};
int ckpt_read(struct ckpt *c, const struct ckpt_info *info, const struct ckpt_read_ops *ops,
	      void *ctx, uint64_t *ret_bad_seg);

/*
 * Whether checkpoint number is built upon: ckpt_read says so of what it reads, and the caller of
 * what it found wrong in the items (bad), after ckpt_read. As long as c is open. Any thread.
 */
void ckpt_mark_bad(struct ckpt *c, uint64_t number, bool bad);

/*
 * Begins a checkpoint of the state at lsn. Segment numbers go on after those of the newest sound
 * checkpoint; what a crash left beyond them is removed. -EBUSY: one is being written, or a damaged
 * one is pinned.
 */
int ckpt_begin(struct ckpt *c, uint64_t lsn, uint64_t epoch, struct ckpt_writer **ret_w);

/* The segment number the next added item will get. */
uint64_t ckpt_writer_seg(const struct ckpt_writer *w);

/*
 * Adds an item; may block for a free buffer. All items of one call are in one segment.
 * *ret_seg: the segment it went to; *ret_bytes: what it takes there (for live-byte accounts).
 * type is not 0. -EIO, -ENOSPC, -EMSGSIZE; after an error only abort (or commit, which fails) is
 * allowed.
 */
int ckpt_writer_add(struct ckpt_writer *w, uint8_t type, const struct iovec *iov, int iovcnt,
		    uint64_t *ret_seg, uint32_t *ret_bytes);

/*
 * Makes it durable: segments synced, manifest with first_seg written, older ones than the newest
 * two removed with the segments only they named. first_seg 0: keep the previous first_seg (or the
 * first new one). Frees w in every case. On error the previous checkpoint stays the newest and the
 * new files are removed. -EINVAL: first_seg before the previous one's or beyond ckpt_writer_seg.
 * -EIO, -ENOSPC.
 */
int ckpt_commit(struct ckpt_writer *w, uint64_t first_seg, uint64_t next_ino,
		struct ckpt_info *ret_info);
void ckpt_abort(struct ckpt_writer *w); /* removes the new segments; NULL is fine */

void ckpt_stats(struct ckpt *c, struct ckpt_stats *ret_stats);

/*
 * For resync: files of a checkpoint by name, to be copied as they are. Names are plain file names
 * in the "ckpt" directory; the manifest comes last. ckpt_pin keeps a checkpoint's files from being
 * removed until ckpt_unpin.
 */
int ckpt_pin(struct ckpt *c, struct ckpt_info *ret_info); /* the newest; -ENOENT when none */
void ckpt_unpin(struct ckpt *c, const struct ckpt_info *info);
int ckpt_seg_name(uint64_t seg, char *out, size_t cap);
int ckpt_manifest_name(uint64_t number, char *out, size_t cap);
int ckpt_dirfd(struct ckpt *c);
/* Removes every file (before a resync's files are installed). -EBUSY: pinned, or being written. */
int ckpt_wipe(struct ckpt *c);

#endif
