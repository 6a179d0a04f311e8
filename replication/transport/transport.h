/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_H
#define KVFS_REPLICATION_TRANSPORT_H
/*
 * The transport seam: write-with-immediate between two endpoints over lanes.
 *
 * An endpoint exposes one window of memory that its peer may write (the mirror: the ring; the
 * primary: a page for acknowledgements). post() writes bytes into the peer's window and then
 * notifies it with a 32-bit immediate value, both on one lane. Guaranteed, as RDMA RC does: on one
 * lane notices arrive in post order, and when a notice arrives the bytes of its post and of all
 * earlier posts on that lane are visible. NOT guaranteed: any order between lanes; that a post that
 * was taken arrived (only the peer's own message says so).
 *
 * The control connection (a connected stream socket, already authenticated by the handshake) is
 * used by accept/connect to exchange what the transport needs, and afterwards belongs to the caller
 * again.
 *
 * Threads: post from any thread, one at a time per lane (the caller's lock); poll from one thread;
 * wake from any. Implementations: tcp, shm, verbs; fault (wraps another: delays, reorders across
 * lanes, kills lanes, corrupts, withholds credits).
 */
#include "replication/memory/region.h"
#include "replication/transport/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define TRANSPORT_LANES_MAX 40
#define TRANSPORT_CREDITS 1024        /* notices in flight on a lane, each way */
#define TRANSPORT_CREDITS_CONTROL 2   /* of these, kept for control notices */

/* Immediate values: below CONTROL_FIRST the ring place in 64-byte units. */
#define TRANSPORT_IMM_UNIT 64
#define TRANSPORT_IMM_CONTROL_FIRST 0xFFFFFF00U
#define TRANSPORT_IMM_ACK 0xFFFFFF00U
#define TRANSPORT_IMM_HEARTBEAT 0xFFFFFF01U

#define TRANSPORT_DATAGRAM_BYTES 256  /* the least that one packet of every network takes */

#define TRANSPORT_POLL_US_MAX 1000000U
#define TRANSPORT_POLL_US_DEFAULT UINT32_MAX /* to others: the ops' poll_us; not in params */

struct transport_params {
	unsigned lanes;           /* wanted; the smaller of both ends is used */
	uint64_t window_bytes;    /* of this end, a multiple of 4096 */
	uint64_t deadline_ns;     /* clock_mono_ns() by which set-up must be done */
	unsigned poll_us;         /* how long poll spins before it sleeps, while that pays */
	/* verbs only; zero and NULL are the defaults */
	unsigned ack_timeout;     /* of a queue pair, 4.096 us * 2^n; 0: 14 */
	const char *device;       /* NAME[:PORT[:GID]]; NULL or empty: any */
	/* bytes in it are sent from where they are, if its owner keeps them */
	struct region_pool *memory;
};

/* A lane that is made anew. */
struct transport_relane {
	unsigned lane;
	uint32_t generation;
	uint64_t deadline_ns; /* clock_mono_ns() */
};

struct transport_post {
	const struct iovec *iov;
	int iovcnt;
	uint64_t remote_off;      /* in the peer's window */
	uint32_t imm;
	bool control;             /* may use the control credits */
};

enum transport_event_kind {
	TRANSPORT_EVENT_NOTICE,     /* imm, lane, off, len: bytes are in the local window */
	TRANSPORT_EVENT_LANE_DOWN,  /* lane, err: nothing more from it; its posts may be lost */
	TRANSPORT_EVENT_PEER_DOWN,  /* err: all lanes are down, or the peer is gone */
	TRANSPORT_EVENT_WRITABLE,   /* a post was taken in part or not at all; try again */
};

struct transport_event {
	enum transport_event_kind kind;
	unsigned lane;
	uint32_t imm;
	int err;
	uint64_t off;   /* tcp and shm know these; verbs: 0, the record says its length */
	uint32_t len;
};

/* What may be changed while an endpoint is open. */
enum transport_knob {
	TRANSPORT_KNOB_LANES = 1, /* it has several; those left alone cost next to nothing */
	TRANSPORT_KNOB_POLL = 2,  /* set_poll_us makes a difference */
	TRANSPORT_KNOB_BATCH = 4, /* posts of one call share a system call or a doorbell */
};

/* Payload of a packet, in bytes; 0: unknown. */
struct transport_mtu {
	unsigned path;       /* most that the way takes */
	unsigned here, peer; /* that both ends' ports take, where they ought to be the same */
};
#define TRANSPORT_MTU_NOTE_BYTES 256
/* Whether both ends are known; and a sentence with the remedy where they differ, else "". */
bool transport_mtu_known(const struct transport_mtu *m);
void transport_mtu_note(const struct transport_mtu *m, char *out, size_t cap);

struct transport_ep; /* an endpoint */

struct transport_ops {
	const char *name;
	unsigned knobs; /* TRANSPORT_KNOB_* */
	unsigned poll_us; /* of params, where nobody asks for another: what pays as a rule */
	/* The same of lanes: used, and opened where some are kept to choose from; 0: no matter. */
	unsigned lanes_used, lanes_open;
	/* bytes in params.memory are sent from where they lie, after post returned */
	bool in_place;

	/* Mirror side / primary side of set-up over control_fd. *ret_why: a static or thread-local
	 * sentence. -ETIMEDOUT, -ECONNRESET, -EPROTO (nonsense from the peer), -ENOTSUP, -ENOMEM;
	 * connect: -EAGAIN, some lanes came up and the others did not in time. */
	int (*accept)(int control_fd, const struct transport_params *p,
		      struct transport_ep **ret_ep, const char **ret_why);
	int (*connect)(int control_fd, const struct addr *peer, const struct transport_params *p,
		       struct transport_ep **ret_ep, const char **ret_why);

	uint8_t *(*window)(struct transport_ep *ep, uint64_t *ret_bytes);
	uint64_t (*remote_window_bytes)(struct transport_ep *ep);
	unsigned (*lanes)(struct transport_ep *ep);

	/* Posts n messages on one lane, in order, as one batch. Returns how many were taken (the
	 * rest had no credits or no room: a WRITABLE event follows), or -ENOTCONN (lane down),
	 * -EINVAL (off or len outside the peer's window). Bytes in params.memory may be read until
	 * the peer says that it has the record (or the endpoint is closed); all others have been
	 * copied when post returns. tcp and shm copy all. Never blocks. */
	int (*post)(struct transport_ep *ep, unsigned lane, const struct transport_post *posts,
		    unsigned n);

	/* Up to max events; waits up to timeout_ns for the first (spinning for up to poll_us first,
	 * while waits are shorter than that as a rule). 0: none came, or woken. Also makes progress
	 * on sends that could not go at once. */
	int (*poll)(struct transport_ep *ep, struct transport_event *ret_events, int max,
		    uint64_t timeout_ns);
	void (*wake)(struct transport_ep *ep);
	void (*set_poll_us)(struct transport_ep *ep, unsigned poll_us);

	/*
	 * Datagrams: messages of up to TRANSPORT_DATAGRAM_BYTES that may be lost and that a newer
	 * one replaces, beside the lanes; never records. They wake nobody. An endpoint that wants
	 * them asks for them (recv); the other sends. All three by the poll thread, none blocks.
	 * NULL, all three: there are none; a notice on a lane does instead.
	 */
	/* 0: sent, perhaps for nothing; -EAGAIN: not just now; -ENOTCONN: the peer has not asked
	 * yet; -ENOTSUP: a device can't. */
	int (*datagram_send)(struct transport_ep *ep, const void *bytes, size_t len);
	/* The newest that came since the last call: its length; 0: none; -ENOTSUP: there will be
	 * none. */
	int (*datagram_recv)(struct transport_ep *ep, void *bytes, size_t cap);
	/* Datagrams should have come and did not: makes a new way for them. False: one is being
	 * made. */
	bool (*datagram_silent)(struct transport_ep *ep);

	/* Why a lane went down, for people: the cause, and what to do. After its LANE_DOWN event,
	 * by the poll thread, until close. NULL, or returns NULL: the event's err says it all. */
	const char *(*lane_why)(struct transport_ep *ep, unsigned lane);

	/* For fault tests and lane changes: ends one lane as a failure would. */
	void (*kill_lane)(struct transport_ep *ep, unsigned lane);

	/*
	 * A lane that is down is made anew, as by accept and connect: at both ends at once, after
	 * both had its LANE_DOWN, by the poll thread, while nobody posts on it; windows and all
	 * other lanes stay. generation: from 1, another each time, the same at both ends: what an
	 * older lane of that number still sends is refused. Nothing of the old lane arrives
	 * afterwards, and its credits count from the beginning. Blocks, until deadline_ns; on
	 * failure the lane stays down. Errors as accept's and connect's, and -ENOTCONN: the peer is
	 * gone. NULL, both: a dead lane stays dead.
	 */
	int (*lane_accept)(struct transport_ep *ep, int control_fd,
			   const struct transport_relane *r, const char **ret_why);
	int (*lane_connect)(struct transport_ep *ep, int control_fd,
			    const struct transport_relane *r, const char **ret_why);

	/* How often the transport has sent something again, all lanes, since set-up. Poll thread.
	 * NULL: it never does, or can't tell. */
	uint64_t (*retries)(struct transport_ep *ep);

	/* Of the way to the peer. Poll thread. NULL: there are no packets. */
	void (*mtu)(struct transport_ep *ep, struct transport_mtu *ret_mtu);

	void (*close)(struct transport_ep *ep);
};

extern const struct transport_ops transport_tcp_ops;
extern const struct transport_ops transport_shm_ops;
extern const struct transport_ops transport_verbs_ops;

/* How long both ends give the set-up of so many lanes. Where the network loses packets some of many
 * wait for rdma_cm to ask again, which it does after 4.3 s, as long again later. Any thread. */
uint64_t transport_setup_ns(unsigned lanes);

const struct transport_ops *transport_for(enum addr_kind kind); /* NULL: not built in */

#endif
