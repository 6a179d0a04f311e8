/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_cm: events with our own deadline (its own, towards a dead host, takes 102 s), the
 * parameters of a connection, and what happens to lanes while the endpoint lives. Set-up's
 * thread, then the poll thread.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

/* A lane that is silent is given up after 5 retries (7 would be for ever), or, where the
 * receiver is not ready, after 6 (again 7 is for ever). */
#define RETRY_COUNT 5
#define RNR_RETRY_COUNT 6

struct rdma_event_channel *verbs_event_channel_open(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	int flags = channel ? fcntl(channel->fd, F_GETFL) : -1;

	if (channel && (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)) {
		rdma_destroy_event_channel(channel);
		channel = NULL;
	}
	return channel;
}

int verbs_cm_wait(struct verbs_ep *ep, int control_fd, uint64_t deadline_ns,
		  struct rdma_cm_event **ret_ev)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = ep->channel->fd, .events = POLLIN },
				       { .fd = control_fd, .events = POLLIN } };
		uint64_t now_ns = clock_mono_ns();
		struct timespec ts;

		if (rdma_get_cm_event(ep->channel, ret_ev) == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		ts = transport_timespec(deadline_ns - now_ns);
		if (ppoll(p, 2, &ts, NULL) < 0 && errno != EINTR)
			return -errno;
		if (p[1].revents != 0 && p[0].revents == 0) {
			*ret_ev = NULL;
			return verbs_recv_status(control_fd, deadline_ns);
		}
	}
}

/* Before connect or accept: what the connection's parameters can't carry. */
void verbs_id_tune(struct verbs_ep *ep, struct rdma_cm_id *id)
{
	uint8_t ack_timeout = ep->ack_timeout;

	/* A kernel before 5.2 has its own, longer, idea of it. */
	(void)rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
			      sizeof(ack_timeout));
}

struct rdma_conn_param verbs_conn_param(const void *data, size_t len)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = (uint8_t)len,
		.retry_count = RETRY_COUNT,
		.rnr_retry_count = RNR_RETRY_COUNT,
	};
}

int verbs_event_errno(const struct rdma_cm_event *ev)
{
	switch (ev->event) {
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_UNREACHABLE:
		return ev->status < 0 ? ev->status : -EHOSTUNREACH;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -ENODEV;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return ev->status < 0 ? ev->status : -ECONNABORTED;
	default:
		return -ECONNRESET;
	}
}

void verbs_lane_event(struct verbs_lane *l, const struct rdma_cm_event *ev)
{
	switch (ev->event) {
	case RDMA_CM_EVENT_ESTABLISHED: /* told late, or twice */
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return;
	default:
		verbs_lane_leave(l, verbs_event_errno(ev));
	}
}

void verbs_cm_attend(struct verbs_ep *ep)
{
	struct rdma_cm_event *ev;

	while (rdma_get_cm_event(ep->channel, &ev) == 0) {
		struct verbs_lane *l = ev->id->context;
		struct rdma_cm_event copy = *ev;

		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			l = NULL; /* came too late: nobody listens any more */
		if (ev->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
			ep->device_gone = true;

		rdma_ack_cm_event(ev);
		if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			(void)rdma_destroy_id(copy.id);
		if (l)
			verbs_lane_event(l, &copy);
	}
}
