/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_VERBS_INTERNAL_H
#define KVFS_REPLICATION_TRANSPORT_VERBS_INTERNAL_H
/*
 * The verbs transport: what one end keeps. A lane is one RC queue pair with a completion queue
 * and a receive queue of its own (a queue pair on a shared one gets no error event, and its
 * flushed receives tell when it is quiet). Its window, and behind it a credit word a lane, is
 * the one piece of memory the peer may write.
 *
 * transport_verbs.c             ops, poll loop, sleep
 * transport_verbs_setup.c       endpoint memory, messages on the control connection
 * transport_verbs_accept.c      the mirror's side of set-up
 * transport_verbs_connect.c     the primary's
 * transport_verbs_cm.c          rdma_cm: events with a deadline, parameters of a connection
 * transport_verbs_lane.c        queue pair, receive queue, end of a lane
 * transport_verbs_post.c        work requests, staging, signalling
 * transport_verbs_completion.c  completions, credits
 * transport_verbs_datagram.c    a UC queue pair each way for datagrams
 * transport_verbs_format.c      decoders of what the peer sends
 * transport_verbs_device.c      devices, ports, addresses
 * transport_verbs_counters.c    what a port counts
 * transport_verbs_mtu.c         packets' size on the way, and at both ends
 * transport_verbs_memory.c      protection domains, arena memory registered with one
 * transport_verbs_error.c       causes and remedies
 *
 * Threads: tx_* and what is marked so under tx_lock, any thread; all else is the poll thread's
 * after set-up.
 */
#include "replication/transport/transport_internal.h"
#include "replication/transport/transport_verbs.h"
#include "replication/transport/transport_verbs_format.h"

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

/* A lane's receives: one for each notice the peer may have under way, and some for notices of
 * credits. Of those at most TRANSPORT_CREDITS / VERBS_CREDIT_EVERY are out before the peer must
 * have taken one. */
#define VERBS_CREDIT_EVERY (TRANSPORT_CREDITS / 4)
#define VERBS_RECEIVE_LIST 32
/* the last: fewer than so many have come and are not posted again yet */
#define VERBS_RECEIVES (TRANSPORT_CREDITS + 8 + VERBS_RECEIVE_LIST)
#define VERBS_SQ_WRS VERBS_LANE_SEND_WRS
#define VERBS_WR_ID_RECEIVE (1ULL << 63) /* else: the request's index */
#define VERBS_SQ_RESERVE 8            /* for credit notices and markers */
#define VERBS_LIST_WRS 128            /* one doorbell */
#define VERBS_LIST_SGES 512
#define VERBS_POST_SGES 64
#define VERBS_SGE_WANTED 16
#define VERBS_INLINE_WANTED 256
#define VERBS_SIGNAL_EVERY 32
#define VERBS_STAGE_BYTES (1088ULL << 10) /* a record of the largest size with its head */
#define VERBS_STAGE_ALIGN 64
#define VERBS_DIRECT_MIN 512          /* below it, copying is cheaper than another element */
#define VERBS_CREDIT_BYTES 4096       /* behind the window: one line a lane, then these */
#define VERBS_LINE_OFFER TRANSPORT_LANES_MAX /* the peer's; and its answer */
#define VERBS_LINE_ANSWER (TRANSPORT_LANES_MAX + 1)
#define VERBS_LINE_OUT (TRANSPORT_LANES_MAX + 2) /* ours, where there is no inline: two lines */
#define VERBS_CREDIT_LINE 64
#define VERBS_DRAIN_NS (200 * NSEC_PER_MSEC)
#define VERBS_IMM_CREDIT 0xFFFFFFFFU
#define VERBS_IMM_OFFER 0xFFFFFFFEU   /* of datagrams, on lane 0; at most one is unanswered */
#define VERBS_IMM_ANSWER 0xFFFFFFFDU
#define VERBS_ACK_TIMEOUT_DEFAULT 14  /* 4.096 us * 2^14 = 67 ms */
static_assert((VERBS_LINE_OUT + 2) * VERBS_CREDIT_LINE <= VERBS_CREDIT_BYTES, "credit words");
static_assert(VERBS_RECEIVES - VERBS_RECEIVE_LIST - TRANSPORT_CREDITS >
		      TRANSPORT_CREDITS / VERBS_CREDIT_EVERY + 2,
	      "receives");
static_assert(VERBS_RECEIVES == VERBS_LANE_RECEIVE_WRS, "what kvfs doctor asks for");

/* A signalled work request that has not completed: once it has, all before it have. */
struct verbs_signal {
	uint32_t wr;        /* index of the work request */
	uint64_t stage_end; /* staged bytes up to it */
};

/* What a post that was not taken needs; WRITABLE is due when it is there. */
struct verbs_want {
	bool any, control;
	unsigned wrs;
	uint64_t stage;
};

struct verbs_lane {
	struct verbs_ep *ep;
	unsigned index;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	bool established;
	uint64_t remote_address;       /* of the peer's window */
	uint32_t remote_rkey;
	unsigned inline_max, sge_max;

	pthread_mutex_t tx_lock;       /* a leaf; the members up to tx_dead */
	uint32_t posted, done;         /* work requests; posted - done are in the send queue */
	uint32_t unsignalled;          /* posted since the last signalled one */
	uint64_t unsignalled_from;     /* stage position then */
	struct verbs_signal signal[VERBS_SQ_WRS];
	uint32_t signal_head, signal_tail;
	uint8_t *stage;                /* registered: bytes that do not lie in registered memory */
	uint64_t stage_bytes, stage_head, stage_tail; /* positions count on */
	uint32_t sent, credited;       /* notices; of these taken by the peer */
	struct verbs_want want;
	struct ibv_send_wr wr[VERBS_LIST_WRS];
	struct ibv_sge sge[VERBS_LIST_SGES];
	_Atomic uint32_t tx_dead;      /* written by any thread */

	bool armed;                    /* the next completion makes an event */
	bool leaving, down, down_reported;
	bool caused;                   /* down_err and why are the first failed completion's */
	uint32_t receives;             /* outstanding */
	uint32_t receives_due;         /* to be posted again */
	uint32_t taken, told;          /* notices given to the caller; of these the peer knows */
	int down_err;
	uint64_t drain_deadline_ns;
	char why[VERBS_TEXT_BYTES];
};

/* A queue pair for datagrams of one direction, and its completion queue: they wake nobody. */
struct verbs_uc {
	struct ibv_qp *qp; /* NULL: none */
	struct ibv_cq *cq;
	uint32_t posted, done; /* sends */
};

/* The poll thread's. */
struct verbs_datagrams {
	struct verbs_uc rx, tx;
	uint8_t *memory;       /* slots of rx, then of tx */
	struct ibv_mr *mr;
	uint32_t generation;   /* of the last offer made; 0: none */
	bool asked;            /* it is unanswered */
	bool rx_refused, tx_refused; /* a device can't */
	bool offer_due, answer_due;  /* lane 0 had no room for it */
	struct verbs_datagram answer;
};

struct verbs_pd;     /* a device's protection domain, shared by the process */

struct verbs_ep {
	struct transport_ep base;
	struct rdma_event_channel *channel;
	struct ibv_comp_channel *comp;
	struct verbs_pd *pd;
	struct ibv_mr *window_mr, *stage_mr;
	uint8_t *stage;
	uint64_t stage_bytes;          /* of all lanes */
	struct region_pool *memory;    /* values in it are sent without a copy; NULL: none */
	bool memory_attached;
	bool device_gone;
	uint8_t ack_timeout;
	struct transport_mtu mtu;
	struct verbs_choice choice;
	int epoll_fd, event_fd;
	_Atomic uint32_t woken, sleeping;
	uint64_t cm_looked_ns;
	unsigned lanes_down, turn;
	bool peer_down_reported;
	struct verbs_datagrams datagrams;
	struct verbs_lane lane[TRANSPORT_LANES_MAX];
};

/* Addresses of both families. */
union verbs_address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

/* transport_verbs_device.c */
/* The control connection's own address, IPv4 where it is mapped. -ENOTSUP: no IP socket. */
int verbs_address_of(int control_fd, bool peer, union verbs_address *ret_a);
socklen_t verbs_address_len(const union verbs_address *a);
/* An address of a device that fits; text as verbs_available's. */
int verbs_address_pick(const struct verbs_choice *c, union verbs_address *ret_a, char *text,
		       size_t cap);
bool verbs_choice_any(const struct verbs_choice *c);
/* Where devices are looked for: class_dir, or what verbs_sys_use says. */
const char *verbs_sys_class(const char *class_dir);

/* transport_verbs_memory.c */
/* The protection domain of the device that id is bound to; the same for all who ask. It stays until
 * the device is taken away. -errno. */
int verbs_pd_get(struct rdma_cm_id *id, struct verbs_pd **ret_pd);
/* device_gone: with its last user the process lets go of the device. */
void verbs_pd_put(struct verbs_pd *pd, bool device_gone);
struct ibv_pd *verbs_pd_handle(struct verbs_pd *pd);
/* Has the pool's regions registered, in the background. False: they are with another device in
 * use. */
bool verbs_memory_attach(struct region_pool *pool, struct verbs_pd *pd);
void verbs_memory_detach(bool device_gone);
/* Key of [addr, addr + len) if it lies in a registered region. */
bool verbs_memory_lkey(struct region_pool *pool, const void *addr, size_t len, uint32_t *ret_lkey);

/* transport_verbs_mtu.c */
/* Of id's port; 0: it need not be the peer's. */
unsigned verbs_port_mtu(struct rdma_cm_id *id);
/* Lane 0 is connected, anew perhaps. */
void verbs_mtu_note(struct verbs_ep *ep);
void verbs_mtu(struct transport_ep *base, struct transport_mtu *ret_mtu);

/* transport_verbs_error.c */
int verbs_status_errno(enum ibv_wc_status status);
/* Sentence for a failed completion, with the remedy. */
void verbs_status_why(const struct ibv_wc *wc, unsigned lane, char *out, size_t cap);
/* A sentence for what failed with err, in thread-local memory. */
__attribute__((format(printf, 2, 3)))
const char *verbs_why(int err, const char *fmt, ...);

/* For -EPROTONOSUPPORT: the peer ("the mirror") has this version of the format; 0: a mute one. */
const char *verbs_formats_why(const char *peer, unsigned version);

/* transport_verbs_setup.c */
struct verbs_ep *verbs_ep_alloc(const struct transport_params *p, const char **ret_why);
/* Memory of the endpoint, once device, lanes and the peer's window are known. */
int verbs_ep_bind(struct verbs_ep *ep, struct rdma_cm_id *id, const char **ret_why);
int verbs_ep_finish(struct verbs_ep *ep);
/* Takes the completion queues' events, before one of the queues can go. */
void verbs_comp_events_take(struct verbs_ep *ep);
void verbs_close(struct transport_ep *base);
/* id: of a lane that is bound to its device. */
void verbs_target_encode(struct verbs_ep *ep, struct rdma_cm_id *id, struct verbs_target *ret_t);
void verbs_target_decode(struct verbs_lane *l, const struct verbs_target *t);
int verbs_send_status(int fd, int err, uint64_t deadline_ns);
int verbs_recv_status(int fd, uint64_t deadline_ns);

/* transport_verbs_cm.c */
/* A channel whose rdma_get_cm_event never waits. NULL: errno says why. */
struct rdma_event_channel *verbs_event_channel_open(void);
/* The next event, to be acked; NULL: none, but the peer says on control_fd that it is done.
 * -ETIMEDOUT; -ECONNABORTED, -ECONNRESET, -EPROTO: what control_fd says else. */
int verbs_cm_wait(struct verbs_ep *ep, int control_fd, uint64_t deadline_ns,
		  struct rdma_cm_event **ret_ev);
void verbs_id_tune(struct verbs_ep *ep, struct rdma_cm_id *id);
struct rdma_conn_param verbs_conn_param(const void *data, size_t len);
/* Errno of an event that means failure. */
int verbs_event_errno(const struct rdma_cm_event *ev);
/* Events of established lanes; the poll thread. */
void verbs_cm_attend(struct verbs_ep *ep);

int verbs_accept(int control_fd, const struct transport_params *p, struct transport_ep **ret_ep,
		 const char **ret_why);
int verbs_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
		  struct transport_ep **ret_ep, const char **ret_why);

/* What a lane that is not being set up is told meanwhile. */
void verbs_lane_event(struct verbs_lane *l, const struct rdma_cm_event *ev);
int verbs_lane_accept(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		      const char **ret_why);
int verbs_lane_connect(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		       const char **ret_why);

/* transport_verbs_lane.c */
/* A lane that is dead, or was never up, loses its queue pair and is as before set-up, but for being
 * down; renew: the same of a dead one, if there is a device; revive: it is up again. The thread of
 * poll and set-up; nobody posts on the lane. */
void verbs_lane_recycle(struct verbs_lane *l);
int verbs_lane_renew(struct verbs_ep *ep, unsigned lane, const char **ret_why);
void verbs_lane_revive(struct verbs_lane *l);
int verbs_lane_open(struct verbs_lane *l, struct rdma_cm_id *id, const char **ret_why);
int verbs_lane_established(struct verbs_lane *l);
void verbs_lane_close(struct verbs_lane *l);
int verbs_receives_post(struct verbs_lane *l, unsigned n);
/* Ends the lane for both ends. Any thread. */
void verbs_lane_kill(struct verbs_lane *l);
/* The lane has failed: it is down once its receives are flushed. The poll thread. */
void verbs_lane_leave(struct verbs_lane *l, int err);

/* transport_verbs_post.c */
int verbs_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	       unsigned n);
/* Tells the peer how many of its notices were taken. False: no room just now. */
bool verbs_post_credit(struct verbs_lane *l);
/* Writes [from, from + len), in the memory of our window, into a line behind the peer's and
 * notifies it. False: no room just now, or the lane is dead. */
bool verbs_note_send(struct verbs_lane *l, unsigned line, const void *from, uint32_t len,
		     uint32_t imm);
/* The work request `wr` and all before it are done. */
void verbs_sends_done_locked(struct verbs_lane *l, uint32_t wr);
int verbs_marker_send_locked(struct verbs_lane *l);
bool verbs_want_met_locked(const struct verbs_lane *l);

/* transport_verbs_datagram.c; the poll thread */
int verbs_datagram_send(struct transport_ep *base, const void *bytes, size_t len);
int verbs_datagram_recv(struct transport_ep *base, void *bytes, size_t cap);
bool verbs_datagram_silent(struct transport_ep *base);
/* The peer's line has come, by lane 0. -EPROTO. */
int verbs_datagram_offered(struct verbs_ep *ep);
int verbs_datagram_answered(struct verbs_ep *ep);
void verbs_datagrams_close(struct verbs_ep *ep);
/* Lane 0 is new: what the old one was to bring may be lost. */
void verbs_datagrams_renew(struct verbs_ep *ep);

/* transport_verbs_completion.c */
/* Takes what completed; false: the sink had no room for it all. */
bool verbs_lane_scan(struct verbs_lane *l, struct transport_sink *s);
/* The lane's completion queue makes an event for what comes next. */
void verbs_lane_arm(struct verbs_lane *l);

static inline uint8_t *verbs_line(struct verbs_ep *ep, unsigned line)
{
	return ep->base.window + ep->base.window_bytes + line * VERBS_CREDIT_LINE;
}

static inline _Atomic uint32_t *verbs_credit_word(struct verbs_ep *ep, unsigned lane)
{
	return (_Atomic uint32_t *)(void *)verbs_line(ep, lane);
}

#endif
