/* SPDX-License-Identifier: Apache-2.0 */
/* A ring's thread: takes requests, runs them, gives the answers back. See fuse_ring.h. */
#include "fs/fuse/fuse_ring_internal.h"

#include "common/clock.h"
#include "common/diag.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#define RING_LOOKS_A_TURN 8
#define RING_OWES_NS (200 * NSEC_PER_USEC) /* a client's next request takes some 10 us */

static int ring_open(struct ring *r)
{
	struct io_uring_params p = {
		/* one thread uses it, gets the kernel's work only when it asks for events, and sees
		 * by a flag that there is some: ring_help() */
		.flags = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER |
			 IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			 IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
		.cq_entries = RING_ENTRIES * 2 + 16,
	};
	cpu_set_t here;
	int err = io_uring_queue_init_params(RING_ENTRIES + 8, &r->uring, &p);

	if (err)
		return err;
	r->uring_open = true;
	CPU_ZERO(&here);
	CPU_SET(r->qid, &here);
	/* where its clients run; an idle or forbidden processor has no clients */
	if (sched_setaffinity(0, sizeof(here), &here) != 0)
		diag_debug("ring %u: %s", r->qid, strerror(errno));
	return 0;
}

static void ring_poll_wake(struct ring *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

	io_uring_prep_poll_multishot(sqe, r->wake_fd, POLLIN);
	io_uring_sqe_set_data64(sqe, RING_WAKE_DATA);
}

/* Gives the kernel all entries. A refusal comes as a completion at once. */
static int ring_register(struct ring *r)
{
	struct fuse_ring_cmd cmd = { .qid = (uint16_t)r->qid };
	struct iovec iov[RING_ENTRIES][2];
	struct io_uring_cqe *cqe;
	int n;

	for (unsigned i = 0; i < RING_ENTRIES; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

		iov[i][0] =
		    (struct iovec){ r->entries[i].headers, sizeof(struct fuse_ring_headers) };
		iov[i][1] = (struct iovec){ r->entries[i].payload, r->rings->payload_bytes };
		io_uring_prep_rw(IORING_OP_URING_CMD, sqe, r->rings->fd, iov[i], 2, 0);
		memset((uint8_t *)sqe + FUSE_RING_CMD_OFF, 0, 128 - FUSE_RING_CMD_OFF);
		sqe->cmd_op = FUSE_RING_CMD_REGISTER;
		io_uring_sqe_set_data64(sqe, i);
		memcpy((uint8_t *)sqe + FUSE_RING_CMD_OFF, &cmd, sizeof(cmd));
	}
	ring_poll_wake(r);
	n = io_uring_submit(&r->uring);
	if (n != RING_ENTRIES + 1)
		return n < 0 ? n : -EIO;
	r->live = RING_ENTRIES;
	if (io_uring_peek_cqe(&r->uring, &cqe) == 0 && cqe->res < 0)
		return cqe->res;
	return 0;
}

/* Hands the kernel what others have answered. */
static void ring_take_stack(struct ring *r)
{
	/* acquire: the answers' bytes */
	struct ring_entry *e = atomic_exchange_explicit(&r->answered, NULL, memory_order_acquire);

	while (e) {
		struct ring_entry *next = e->next;

		ring_entry_commit(e);
		e = next;
	}
}

static void ring_take_answered(struct ring *r)
{
	atomic_store(&r->woken, false); /* before the look: what comes after it wakes us */
	ring_take_stack(r);
}

/* Whether e was refused and is to run once more. Put off, it is kv-wait's. */
static bool ring_handle_as(struct ring_entry *e, bool once)
{
	struct ring *r = e->ring;
	bool again, put_off;

	e->refused = once ? RING_REFUSE_ONCE : RING_REFUSE;
	r->handled = e;
	ring_entry_handle(e);
	r->handled = NULL;
	again = e->refused == RING_REFUSED;
	put_off = e->refused == RING_PUT_OFF;
	e->refused = RING_REFUSE; /* what is answered later is answered for good */
	if (put_off)
		ring_wait_push(&r->rings->wait, e);
	return again;
}

/*
 * An unlinked key gives its memory back with its FORGET, which comes by the device. What asks for
 * memory is not to overtake it: what is refused runs once more behind the FORGETs; statfs, which
 * counts, behind them at once.
 */
static void ring_handle(struct ring_entry *e)
{
	struct fs *fs = e->ring->rings->fs;

	if (ring_entry_is_statfs(e))
		fs_drain_device(fs);
	if (!ring_handle_as(e, true))
		return;
	fs_drain_device(fs);
	ring_handle_as(e, false);
}

static void ring_take_completion(struct ring *r, uint64_t data, const struct io_uring_cqe *cqe)
{
	struct ring_entry *e;

	if (data == RING_WAKE_DATA) {
		if (!(cqe->flags & IORING_CQE_F_MORE))
			ring_poll_wake(r);
		return;
	}
	e = &r->entries[data];
	if (cqe->res < 0)
		r->live--; /* the mount is gone */
	else if (ring_entry_may_wait(e))
		ring_wait_push(&r->rings->wait, e);
	else
		ring_handle(e);
}

/* While records are on their way and no request is here: looks for their acknowledgements, and
 * sends the answers that these let go. */
static void ring_help(struct ring *r)
{
	struct io_uring_cqe *cqe;
	bool requests = false;
	unsigned looks = 0;

	if (!primary_help_begin(&r->helper))
		return;
	atomic_store(&r->woken, true); /* awake already: what is handed over needs no wake-up */
	while (!requests && primary_help(&r->helper)) {
		ring_take_stack(r);
		if (io_uring_sq_ready(&r->uring))
			io_uring_submit(&r->uring);
		requests = io_uring_peek_cqe(&r->uring, &cqe) == 0;
		/* a yield costs more than a look, and the mirror may be waiting for its turn */
		if (++looks % RING_LOOKS_A_TURN == 0)
			sched_yield();
	}
	primary_help_end(&r->helper, requests);
	ring_take_answered(r);
}

/* For a request or an answer to hand over; records that are owed to the mirrors go when none has
 * come soon. */
static int ring_sleep(struct ring *r)
{
	struct commit *c = r->rings->fs->commit;
	uint64_t since = c ? commit_owed_since(c) : 0, age;
	struct __kernel_timespec rest = { 0 };
	struct io_uring_cqe *cqe;

	if (!since)
		return io_uring_submit_and_wait(&r->uring, 1);
	age = clock_mono_ns() - since;
	if (age >= RING_OWES_NS)
		commit_drive(c);
	else
		rest.tv_nsec = (long)(RING_OWES_NS - age);
	return io_uring_submit_and_wait_timeout(&r->uring, &cqe, 1, &rest, NULL);
}

static void ring_serve(struct ring *r)
{
	struct fuse_rings *rings = r->rings;
	struct io_uring_cqe *cqes[64];

	r->helper.primary = rings->fs->node->primary;
	while (r->live && !rings->stopping) {
		unsigned n;

		ring_help(r);
		if (ring_sleep(r) == -EBADF)
			break;
		n = io_uring_peek_batch_cqe(&r->uring, cqes, 64);
		for (unsigned i = 0; i < n; i++)
			ring_take_completion(r, io_uring_cqe_get_data64(cqes[i]), cqes[i]);
		io_uring_cq_advance(&r->uring, n);
		if (r->drive) {
			r->drive = false;
			commit_drive_owing(rings->fs->commit);
		}
		ring_take_answered(r);
	}
	primary_helper_leave(&r->helper);
	io_uring_submit(&r->uring);
}

/* Reports how far the thread got; waits for the order to begin. */
static bool ring_await_order(struct ring *r, int err)
{
	struct fuse_rings *rings = r->rings;
	bool begin;

	pthread_mutex_lock(&rings->lock);
	rings->ready++;
	if (err && !rings->err)
		rings->err = err;
	pthread_cond_broadcast(&rings->changed);
	while (rings->order == RINGS_NEW)
		/* fuse_rings_begin() or _stop() ends it */
		pthread_cond_wait(&rings->changed, &rings->lock);
	begin = rings->order == RINGS_BEGIN;
	pthread_mutex_unlock(&rings->lock);
	return begin && !err;
}

void *ring_thread(void *arg)
{
	struct ring *r = arg;
	struct fuse_rings *rings = r->rings;
	int err = ring_open(r);

	ring_self = r;
	if (ring_await_order(r, err)) {
		err = ring_register(r);
		pthread_mutex_lock(&rings->lock);
		rings->begun++;
		if (err && !rings->err)
			rings->err = err;
		pthread_cond_broadcast(&rings->changed);
		pthread_mutex_unlock(&rings->lock);
		if (!err)
			ring_serve(r);
		fs_worker_left(rings->fs);
	}
	if (r->uring_open)
		io_uring_queue_exit(&r->uring);
	return NULL;
}

bool fuse_ring_put_off(void)
{
	if (!ring_self || !ring_self->handled)
		return false;
	ring_self->handled->refused = RING_PUT_OFF;
	return true;
}

void fuse_ring_may_block(void)
{
	if (ring_self)
		primary_helper_leave(&ring_self->helper);
}

bool fuse_ring_drives_later(void)
{
	if (!ring_self)
		return false;
	ring_self->drive = true;
	return true;
}
