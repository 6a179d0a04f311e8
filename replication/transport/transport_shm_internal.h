/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_SHM_INTERNAL_H
#define KVFS_REPLICATION_TRANSPORT_SHM_INTERNAL_H
/*
 * The shm transport: what one end keeps to itself. Posting threads own tx_* of their lane (the
 * caller's lane lock); the poll thread owns rx_*, down_* and the endpoint's unmarked members.
 */
#include "replication/transport/transport_internal.h"
#include "replication/transport/transport_shm_layout.h"

struct shm_lane {
	struct shm_ep *ep;
	unsigned index;
	struct shm_ring *in, *out;   /* in our inbox; in the peer's */
	_Atomic uint32_t tx_head;    /* the poster writes; the poll thread looks for WRITABLE */
	uint32_t tx_tail;            /* peer's tail as last seen */
	_Atomic uint32_t tx_dead;    /* any thread: no more posts (hint_write, hint_read) */
	/* WANT_*: a post came back short (sleep_announce, sleep_take) */
	_Atomic uint32_t want;
	uint32_t rx_tail;
	bool down, down_reported;
	int down_err;
};

enum { WANT_CREDIT = 1, WANT_CONTROL_CREDIT = 2 };

struct shm_ep {
	struct transport_ep base;
	uint8_t *inbox, *peer_inbox;
	struct shm_head *head, *peer_head;
	uint64_t inbox_bytes, peer_inbox_bytes;
	uint8_t *peer_window;
	int life_fd;                 /* a socket whose other end the peer's process holds open */
	uint64_t life_checked_ns;
	_Atomic uint32_t woken;
	bool peer_gone, peer_down_reported;
	int peer_err;
	unsigned lanes_down;
	unsigned turn;               /* lane to begin the next scan with */
	struct shm_lane lane[TRANSPORT_LANES_MAX];
};

/* transport_shm_lane.c */
int shm_post(struct transport_ep *base, unsigned lane, const struct transport_post *posts,
	     unsigned n);
/* Takes what came and says what else there is to say of the lane; false: the sink had no room
 * for it all. */
bool shm_lane_scan(struct shm_lane *l, struct transport_sink *s);
/* Ends the lane for both ends. Any thread. */
void shm_lane_kill(struct shm_lane *l);
/* A dead lane begins again, as far as this end writes it; reopen: it is used again. Poll thread,
 * nobody posts on the lane. */
void shm_lane_reset(struct shm_lane *l);
void shm_lane_reopen(struct shm_lane *l);
/* Wakes the end that owns this inbox, if it sleeps. */
void shm_wake_owner(struct shm_head *head);

/* transport_shm_memory.c. An inbox of our own: sealed against shrinking, its memory there. -ENOMEM,
 * -errno. */
int shm_inbox_create(uint64_t bytes, int *ret_fd, uint8_t **ret_map);
/* The peer's, checked so that no access can raise SIGBUS. -EPROTO, -ENOMEM. */
int shm_inbox_map(int fd, uint64_t bytes, uint8_t **ret_map);
/* Sends or receives a hello with descriptors. Receiving: exactly want of them, else -EPROTO. */
int shm_hello_send(int sock, const struct shm_hello *h, const int *fds, unsigned n,
		   uint64_t deadline_ns);
int shm_hello_recv(int sock, struct shm_hello *ret_h, int *ret_fds, unsigned want,
		   uint64_t deadline_ns);

/* transport_shm_setup.c */
int shm_accept(int control_fd, const struct transport_params *p, struct transport_ep **ret_ep,
	       const char **ret_why);
int shm_connect(int control_fd, const struct addr *peer, const struct transport_params *p,
		struct transport_ep **ret_ep, const char **ret_why);
int shm_lane_accept(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		    const char **ret_why);
int shm_lane_connect(struct transport_ep *base, int control_fd, const struct transport_relane *r,
		     const char **ret_why);
void shm_close(struct transport_ep *base);

#endif
