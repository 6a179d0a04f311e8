/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_TCP_INTERNAL_H
#define KVFS_REPLICATION_TRANSPORT_TCP_INTERNAL_H
/*
 * The tcp transport: a connection a lane. Sending (transport_tcp_tx.c) runs in whichever thread
 * posts and, for what a socket did not take at once and for credits, in the poll thread: both under
 * tx_lock. Receiving (transport_tcp_rx.c) and everything unmarked below belongs to the poll thread.
 */
#include "replication/transport/transport_internal.h"
#include "replication/transport/transport_tcp_format.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#define TCP_RX_BYTES (32U << 10)
/* What a lane may owe its socket before posts come back short; one post larger than
 * this goes alone. */
#define TCP_OUT_BYTES (4U << 20)
#define TCP_CREDIT_BATCH (TRANSPORT_CREDITS / 2)

struct tcp_lane {
	struct tcp_ep *ep;
	/* closed with the endpoint, or when the lane is made anew: a post never meets a reused
	 * one */
	int fd;
	unsigned index;

	pthread_mutex_t tx_lock;
	/* tx_lock writes: notices sent or queued; the poll thread checks credits by it */
	_Atomic uint32_t tx_posted;
	/* tx_lock: bytes [out_start, out_end) the socket has not taken */
	uint8_t *out;
	size_t out_start, out_end, out_cap;
	bool tx_dead;                /* tx_lock */
	/* by the peer; poll thread writes (credit_return, credit_observe) */
	_Atomic uint32_t tx_consumed;
	/* WANT_*: a post came back short (sleep_announce, sleep_take) */
	_Atomic uint32_t want;

	_Atomic uint32_t rx_consumed; /* poll thread writes, senders read: a hint is enough */
	_Atomic uint32_t rx_reported; /* tx_lock writes: rx_consumed as last sent */

	uint8_t *rx;                 /* TCP_RX_BYTES; [rx_start, rx_end) came and is not parsed */
	uint32_t rx_start, rx_end;
	uint32_t rx_seq;             /* notices begun */
	bool in_frame;               /* a notice is arriving: */
	uint32_t frame_len, frame_got, frame_imm;
	uint64_t frame_off;
	bool backlog;                /* the events' array was full: parse before sleeping */
	bool down, down_reported;
	int down_err;
};

enum { WANT_CREDIT = 1, WANT_CONTROL_CREDIT = 2, WANT_ROOM = 4 };

struct tcp_ep {
	struct transport_ep base;
	int epoll_fd, event_fd;
	/* poll is, or is about to be, in epoll_wait (sleep_announce) */
	_Atomic uint32_t sleeping;
	_Atomic uint32_t woken;      /* wake() was called */
	_Atomic uint32_t attention;  /* some lane has want, backlog or down to look at */
	unsigned hot;                /* lane that was active last */
	unsigned turn;               /* lane to begin the next round with */
	unsigned lanes_down;
	bool peer_down_reported;
	struct tcp_lane lane[TRANSPORT_LANES_MAX];
};

/* transport_tcp_tx.c */
int tcp_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	     unsigned n);
/* Sends what is queued, as far as the socket takes it. */
void tcp_tx_flush(struct tcp_lane *l);
/* Reports rx_consumed to the peer if half the credits are owed. */
void tcp_tx_credit(struct tcp_lane *l);
/* The post that came back short would now be taken. Poll thread, after taking want. */
bool tcp_tx_writable(struct tcp_lane *l, uint32_t want);
/* Ends the lane; the poll thread notices by the socket. Any thread. */
void tcp_tx_kill(struct tcp_lane *l);

/* transport_tcp_rx.c */
/* Parses what came, reads more as long as there is more and the sink has room. */
void tcp_rx(struct tcp_lane *l, struct transport_sink *s);
/* The decoder: what lies in the lane's buffer, into window and sink, without touching the socket.
 * 0: it holds no whole thing more; 1: the sink is full; -EPROTO, and the lane must go. */
int tcp_rx_parse(struct tcp_lane *l, struct transport_sink *s);
/* Only parses: for lanes with a backlog. */
void tcp_rx_backlog(struct tcp_lane *l, struct transport_sink *s);

/* transport_tcp.c: poll thread; err says why. */
void tcp_lane_down(struct tcp_lane *l, int err);

/* A dead lane goes on over another connection; takes over fd, even when it fails. Poll thread,
 * nobody posts on the lane. -errno: the lane stays dead. */
int tcp_lane_renew(struct tcp_lane *l, int fd);

/* transport_tcp_accept.c, transport_tcp_connect.c */
int tcp_lane_accept(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		    const char **ret_why);
int tcp_lane_connect(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		     const char **ret_why);
int tcp_accept(int control_fd, const struct transport_params *p, struct transport_ep **ret_ep,
	       const char **ret_why);
int tcp_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
		struct transport_ep **ret_ep, const char **ret_why);

/* transport_tcp_setup.c */
union tcp_sock_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};
/* Before connect or listen: the buffers decide the window scale. */
void tcp_set_options(int fd);
/* After getsockname or getpeername returned r: *ret_len for bind or connect. -ENOTSUP: not an
 * internet address. */
int tcp_address_check(int r, union tcp_sock_addr *a, socklen_t *ret_len);
void tcp_set_port(union tcp_sock_addr *a, uint16_t port);
uint16_t tcp_get_port(const union tcp_sock_addr *a);
void tcp_close_all(const int *fds, unsigned n); /* passes over negative ones */
/* err: 0 or -errno. Receiving: -ECONNABORTED, the peer gave up; -EPROTO; as setup_recv. */
int tcp_send_status(int fd, int err, uint64_t deadline_ns);
int tcp_recv_status(int fd, uint64_t deadline_ns);

/* transport_tcp.c: makes an endpoint of n connected sockets, which it takes over even when it
 * fails. -ENOMEM, … */
int tcp_ep_create(const struct transport_params *p, const int *fds, unsigned n,
		  uint64_t remote_bytes, struct transport_ep **ret_ep);

#endif
