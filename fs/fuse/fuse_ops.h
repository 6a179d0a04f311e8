/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_OPS_H
#define KVFS_FS_FUSE_OPS_H
/*
 * The FUSE boundary: requests of the kernel against the store and the commit queue.
 *
 * A mutation is a record: executed on the store and queued under the store's lock, answered when
 * the commit point passes it. A read takes a snapshot under the lock; if the object has uncommitted
 * changes the answer waits for the commit point with that snapshot. Exactly one reply a request,
 * never with a lock held.
 *
 * Threads: handlers in "kv-fuse-N"; replies also from whoever moves the commit point. struct fs is
 * constant while workers run, but for the atomics.
 */
#include "fs/fuse/fuse_doubt.h"
#include "fs/fuse/fuse_metrics.h"
#include "fs/node/node.h"

#include <fuse_lowlevel.h>
#include <stdatomic.h>

#define FS_WORKERS_MAX 16
#define FS_SPARES_MAX 32 /* started when all others wait for log room */
/* all changes come through this mount: the kernel may keep what it knows */
#define FS_CACHE_SECONDS 86400.0

struct fs {
	struct node *node;
	struct commit *commit;       /* NULL on a mirror */
	struct fuse_session *se;
	struct doubt *doubt;         /* NULL on a mirror */
	struct fuse_rings *rings;    /* NULL: every request comes through /dev/fuse */
	/* the device is read for FORGET and INTERRUPT only; before workers start */
	_Atomic bool rings_alone;
	pthread_mutex_t device_lock; /* then: who reads the device; outside all other locks */
	struct fuse_buf device_buf;  /* device_lock */
	_Atomic unsigned ring_count; /* rings that serve; 0: none, and rings_why says why */
	const char *_Atomic rings_why;
	char *mountpoint;
	double cache_seconds;
	uint64_t timeout_ns;
	bool read_only, mirror, xattr, noatime, nodiratime;
	bool served;                 /* workers were started */
	unsigned worker_count;       /* workers_lock */
	pthread_mutex_t workers_lock;
	pthread_t workers[FS_WORKERS_MAX + FS_SPARES_MAX]; /* workers_lock; worker_count of them */
	unsigned workers_waiting;    /* workers_lock: inside fs_admit */
	_Atomic unsigned workers_running;
	_Atomic bool stopping;
	_Atomic bool orphans_left;   /* no log room for INODE_FREE: kv-ckpt tries again */
	struct fs_metrics metrics;   /* constant while workers run */
	int ended_fd;                /* eventfd: written when the last worker leaves */
};

/* How an operation's request is answered when it is committed. */
enum fs_reply {
	FS_REPLY_NONE,   /* no request waits (INODE_FREE, relatime) */
	FS_REPLY_OK,
	FS_REPLY_ATTR,
	FS_REPLY_ENTRY,  /* holds a kernel reference, dropped when the answer fails */
	FS_REPLY_COUNT,  /* bytes written or copied */
	FS_REPLY_BUF,    /* tail[0, count) */
	FS_REPLY_LIST,   /* READDIRPLUS: as BUF; references as listed in the tail (fuse_dir.c) */
	FS_REPLY_REFS,   /* value bytes */
	FS_REPLY_OFFSET,
	FS_REPLY_LENGTH, /* length of an xattr or of the list */
};

struct fs_op {
	struct op op; /* first: op_ops get this */
	struct fs *fs;
	fuse_req_t req;
	enum fs_reply reply;
	struct fs_timing timing;     /* of the request */
	unsigned ref_count;
	union {
		struct fuse_entry_param entry;
		struct stat attr;
		uint64_t count;
	} u;
	struct value_ref refs[OP_DATA_IOV_MAX]; /* what data points to, or what a read answers */
	uint8_t tail[];                         /* the record's head, or answer bytes */
};

/* fuse_op.c: life of an operation. */

/* tail_bytes of room behind it; NULL: no memory (the caller answers ENOMEM). req may be NULL. */
struct fs_op *fs_op_new(struct fs *fs, fuse_req_t req, enum fs_reply reply, size_t tail_bytes);
void fs_op_free(struct fs_op *o); /* one that was never queued; puts its references */

/* commit_admit() for a handler: while it waits, another worker reads requests, so reads and
 * deletes go on. */
int fs_admit(struct fs *fs, uint32_t bytes, bool urgent, uint64_t deadline_ns);

/* After an operation was queued: appends and sends it, or leaves that to the end of
 * this thread's group. */
void fs_drive(struct fs *fs);

/* Between these, fs_drive by this thread waits: for one who holds a lock. Release says whether
 * it is owed. */
void fs_drive_hold(void);
bool fs_drive_release(void);

/* fuse_workers.c: a worker begins or ends a wait; it has left. */
void fs_worker_waits(struct fs *fs);
void fs_worker_goes_on(struct fs *fs);
void fs_worker_left(struct fs *fs);

/* With rings: handles what waits on the device, FORGETs first of all, which give memory back.
 * When it returns, all that was there at its call is done. -EAGAIN: nothing more; -ENODEV, 0:
 * the mount is gone. */
int fs_drain_device(struct fs *fs);

/* The store of the moment, locked. */
struct store *fs_lock(struct fs *fs);
void fs_unlock(struct fs *fs, struct store *st);

/*
 * Executes r as the next record and fills what the reply needs (entry, attributes); queues o. Under
 * the lock. On failure nothing happened and o is still the caller's. stage and the record's data:
 * WRITE only.
 */
int fs_op_execute_locked(struct fs *fs, struct store *st, struct record *r,
			 struct value_stage *stage, uint32_t data_crc, struct fs_op *o);

enum fs_submit_how {
	FS_URGENT = 1, /* may use the log room kept for deletions */
	FS_EARLY = 2,  /* op.early: may be answered before the mirrors have it */
};

/*
 * A whole mutation: room in the log, lock, prepare (may be NULL; completes or refuses r), execute,
 * drive. Answers req in every case. req NULL with FS_REPLY_NONE: never waits (without room in the
 * log nothing happens), and the caller drives. how: of enum fs_submit_how.
 */
void fs_submit(struct fs *fs, fuse_req_t req, enum fs_reply reply, struct record *r, unsigned how,
	       int (*prepare)(struct fs *fs, struct store *st, struct record *r, void *arg),
	       void *arg);

/* INODE_FREE for orphans nobody holds; any thread. */
void fs_free_inodes(struct fs *fs, const uint64_t *inos, unsigned n);

/* Answers when the commit point has reached lsn: o's snapshot is complete. */
void fs_reply_after(struct fs *fs, struct fs_op *o, uint64_t lsn);
static inline bool fs_committed(const struct fs *fs, uint64_t lsn)
{
	return !fs->commit || commit_point(fs->commit) >= lsn;
}

/* takes a reference */
void fs_fill_entry_locked(struct fs *fs, struct inode *in, struct fuse_entry_param *ret_e);
void fs_unref(struct fs *fs, uint64_t ino, uint64_t n); /* FORGET: drops kernel references */
int fs_reply_refs(struct fs *fs, fuse_req_t req, const struct value_ref *refs, unsigned n);
static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* fuse_read.c */
void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void fs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_readlink(fuse_req_t req, fuse_ino_t ino);
void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void fs_statfs(fuse_req_t req, fuse_ino_t ino);
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
bool fs_atime_is_due_locked(const struct fs *fs, const struct inode *in); /* relatime */

/* fuse_dir.c */
void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void fs_list_unref(struct fs_op *o); /* the references of an FS_REPLY_LIST that could not be sent */

/* fuse_write.c: values and attributes */
void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi);
void fs_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags);
/* Moves an access time that fs_atime_is_due_locked said to be due, by a record of its own. Before
 * the answer, so that who asks for the time next sees it; fs_drive comes after the answer, which is
 * not to wait for the log. Without room in the log the time stays. */
void fs_touch_atime(struct fs *fs, uint64_t ino);

/* fuse_name.c: names */
void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned flags);

/* fuse_xattr.c: all answer ENOSYS unless the option xattr is given */
void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
