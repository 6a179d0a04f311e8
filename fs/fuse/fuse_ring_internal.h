/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_FUSE_RING_INTERNAL_H
#define KVFS_FS_FUSE_RING_INTERNAL_H
/*
 * What the parts of fuse_ring.h share.
 *
 * fuse_ring.c         all rings together: set-up, INIT, the end
 * fuse_ring_thread.c  "kv-ring-N"
 * fuse_ring_entry.c   requests and answers
 * fuse_ring_wait.c    "kv-wait-N": requests that may have to wait
 */
#include "fs/fuse/fuse_ops.h"
#include "fs/fuse/fuse_ring.h"
#include "fs/fuse/fuse_ring_format.h"

#include <liburing.h>

#define RING_ENTRIES 128        /* requests of one processor that may be under way */
/* before each payload: a request is put together without moving its data */
#define RING_LEAD_BYTES 4096
#define RING_WAKE_DATA UINT64_MAX
#define RING_UNIQUE (1ULL << 63) /* of the unique numbers that we give to libfuse */

struct ring;

struct ring_entry {
	struct ring *ring;
	struct fuse_ring_headers *headers;
	uint8_t *payload;
	uint64_t commit_id;         /* the kernel's number of the request */
	uint64_t pushed_ns;         /* when it came to wait.queue; 0: it did not */
	/* Not answered by its ring's thread, but to be handled once more: see ring_handle() */
	enum { RING_REFUSE, RING_REFUSE_ONCE, RING_REFUSED, RING_PUT_OFF } refused;
	struct ring_entry *next;    /* in ring->answered or wait.queue */
};

struct ring {
	struct fuse_rings *rings;
	unsigned qid;               /* the processor */
	struct io_uring uring;      /* its thread's alone */
	bool uring_open;
	int wake_fd;                /* eventfd, polled by the ring */
	/* wake_fd was written and not yet seen, or the thread looks anyway */
	_Atomic bool woken;
	_Atomic(struct ring_entry *) answered; /* by other threads: a stack */
	struct ring_entry *handled; /* its thread's: the request it handles now */
	unsigned live;              /* entries the kernel has or we answer; its thread's alone */
	/* records were queued since the last commit_drive(); its thread's alone */
	bool drive;
	struct primary_helper helper; /* its thread's alone */
	struct ring_entry *entries; /* RING_ENTRIES */
	struct fuse_ring_headers *headers;
	uint8_t *memory;
	size_t memory_bytes;
	pthread_t thread;
	bool started;
};

/* Threads for requests that may have to wait for log room. */
struct ring_wait {
	struct fs *fs;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct ring_entry *head, **tail;  /* lock */
	unsigned queued, idle, count;     /* lock */
	bool stopping;                    /* lock */
	pthread_t threads[FS_SPARES_MAX]; /* lock; count of them */
};

struct fuse_rings {
	struct fs *fs;
	int fd;                     /* of the session */
	size_t payload_bytes;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* lock: what the threads are to do */
	enum { RINGS_NEW, RINGS_BEGIN, RINGS_ABANDONED } order;
	unsigned ready, begun;      /* lock: threads that got that far */
	int err;                    /* lock: the first failure of any */
	_Atomic bool init_done;     /* the INIT request is answered */
	bool promised;              /* lock: the INIT answer says rings; only a refusal undoes it */
	bool init_offers;           /* the kernel's INIT offered it; before init_done */
	_Atomic bool stopping;
	struct ring_wait wait;
	unsigned count;
	struct ring rings[];
};

extern _Thread_local struct ring *ring_self; /* the ring whose thread this is */

/* fuse_ring_thread.c: a ring's thread; arg is the ring. */
void *ring_thread(void *arg);

/* fuse_ring_entry.c */

/* Runs the request that the kernel put into e; answers come by ring_writev(). */
void ring_entry_handle(struct ring_entry *e);

/* Whether the request in e should not run on a ring's thread, because the log is nearly full, or it
 * takes long. */
bool ring_entry_may_wait(const struct ring_entry *e);

bool ring_entry_is_statfs(const struct ring_entry *e);

/* Gives e's answer to the kernel with the next submission. The ring's thread. */
void ring_entry_commit(struct ring_entry *e);

/* What libfuse sends: answers of requests that came by a ring, the INIT answer (with our flag
 * set), all else. */
ssize_t ring_writev(int fd, struct iovec *iov, int count, void *userdata);

/* fuse_ring_wait.c */
int ring_wait_init(struct ring_wait *w, struct fs *fs);
void ring_wait_push(struct ring_wait *w, struct ring_entry *e);
void ring_wait_stop(struct ring_wait *w);
void ring_wait_destroy(struct ring_wait *w);

#endif
