/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Set-up and end of a verbs endpoint, the part that both sides share: its memory, its place in the
 * sleep of poll, the status that ends set-up.
 */
#include "common/byteorder.h"
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define ACK_TIMEOUT_MAX 31

struct verbs_ep *verbs_ep_alloc(const struct transport_params *p, const char **ret_why)
{
	struct verbs_ep *ep = calloc(1, sizeof(*ep));
	int err;

	*ret_why = "no memory for the lanes";
	if (!ep)
		return NULL;
	ep->base.ops = &transport_verbs_ops;
	ep->base.window_bytes = p->window_bytes;
	ep->base.poll_us = p->poll_us;
	ep->memory = p->memory;
	ep->ack_timeout = (uint8_t)(p->ack_timeout == 0 || p->ack_timeout > ACK_TIMEOUT_MAX
					    ? VERBS_ACK_TIMEOUT_DEFAULT
					    : p->ack_timeout);
	ep->epoll_fd = ep->event_fd = -1;
	for (unsigned i = 0; i < TRANSPORT_LANES_MAX; i++) {
		ep->lane[i].ep = ep;
		ep->lane[i].index = i;
		pthread_mutex_init(&ep->lane[i].tx_lock, NULL);
	}
	*ret_why = "the device is not written NAME, NAME:PORT or NAME:PORT:GID";
	err = verbs_choice_parse(p->device ? p->device : "", &ep->choice);
	if (!err) {
		ep->channel = verbs_event_channel_open();
		err = ep->channel ? 0 : errno ? -errno : -ENODEV;
		if (err)
			*ret_why = verbs_why(err == -ENOENT || err == -EACCES ? err : -ENODEV,
					     "cannot open the RDMA connection manager");
	}
	if (err) {
		verbs_close(&ep->base);
		return NULL;
	}
	return ep;
}

/* Memory that starts on a page of its own, and that the device may use. */
static int memory_make(struct verbs_ep *ep, uint64_t bytes, int access, uint8_t **ret_at,
		       struct ibv_mr **ret_mr)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	(void)madvise(at, bytes, MADV_HUGEPAGE);
	*ret_at = at;
	*ret_mr = ibv_reg_mr(verbs_pd_handle(ep->pd), at, bytes, access);
	return *ret_mr ? 0 : errno ? -errno : -EIO;
}

static int comp_open(struct verbs_ep *ep, struct ibv_context *verbs)
{
	int flags;

	ep->comp = ibv_create_comp_channel(verbs);
	if (!ep->comp)
		return errno ? -errno : -EIO;
	flags = fcntl(ep->comp->fd, F_GETFL);
	return flags < 0 || fcntl(ep->comp->fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* A lane's: a record of the largest size, or what the peer has room for. */
static uint64_t stage_of(uint64_t remote_bytes)
{
	return remote_bytes < VERBS_STAGE_BYTES ? remote_bytes : VERBS_STAGE_BYTES;
}

uint64_t verbs_locked_bytes(unsigned lanes, uint64_t window_bytes, uint64_t remote_bytes)
{
	return window_bytes + VERBS_CREDIT_BYTES + lanes * stage_of(remote_bytes);
}

int verbs_ep_bind(struct verbs_ep *ep, struct rdma_cm_id *id, const char **ret_why)
{
	struct ibv_context *verbs = id->verbs;
	uint64_t stage = stage_of(ep->base.remote_bytes);
	uint64_t window = ep->base.window_bytes + VERBS_CREDIT_BYTES;
	int err;

	if (ep->pd) {
		if (verbs_pd_handle(ep->pd)->context == verbs)
			return 0;
		*ret_why = "the lanes lead over different RDMA devices";
		return -ENODEV;
	}
	ep->stage_bytes = stage * ep->base.lanes;
	err = verbs_pd_get(id, &ep->pd);
	if (!err)
		err = comp_open(ep, verbs);
	if (!err)
		err = memory_make(ep, window, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
				  &ep->base.window, &ep->window_mr);
	if (!err)
		err = memory_make(ep, ep->stage_bytes, 0, &ep->stage, &ep->stage_mr);
	if (err) {
		*ret_why = verbs_why(err, "cannot register %llu KiB with %s",
				     (unsigned long long)(window + ep->stage_bytes) >> 10,
				     ibv_get_device_name(verbs->device));
		return err;
	}
	for (unsigned i = 0; i < ep->base.lanes; i++) {
		ep->lane[i].stage = ep->stage + i * stage;
		ep->lane[i].stage_bytes = stage;
	}
	ep->memory_attached = verbs_memory_attach(ep->memory, ep->pd);
	return 0;
}

static int watch(struct verbs_ep *ep, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(ep->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

int verbs_ep_finish(struct verbs_ep *ep)
{
	int err;

	verbs_mtu_note(ep);
	ep->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ep->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ep->epoll_fd < 0 || ep->event_fd < 0)
		return -errno;
	err = watch(ep, ep->event_fd);
	if (!err)
		err = watch(ep, ep->comp->fd);
	return err ? err : watch(ep, ep->channel->fd);
}

void verbs_comp_events_take(struct verbs_ep *ep)
{
	struct ibv_cq *cq;
	void *ctx;

	while (ep->comp && ibv_get_cq_event(ep->comp, &cq, &ctx) == 0) {
		((struct verbs_lane *)ctx)->armed = false;
		ibv_ack_cq_events(cq, 1);
	}
}

void verbs_close(struct transport_ep *base)
{
	struct verbs_ep *ep = (struct verbs_ep *)base;

	if (!ep)
		return;
	if (ep->channel)
		verbs_cm_attend(ep); /* the device may have gone just now */
	verbs_comp_events_take(ep);
	verbs_datagrams_close(ep);
	for (unsigned i = 0; i < TRANSPORT_LANES_MAX; i++)
		verbs_lane_close(&ep->lane[i]);
	if (ep->memory_attached)
		verbs_memory_detach(ep->device_gone);
	if (ep->window_mr)
		(void)ibv_dereg_mr(ep->window_mr);
	if (ep->stage_mr)
		(void)ibv_dereg_mr(ep->stage_mr);
	if (ep->comp)
		(void)ibv_destroy_comp_channel(ep->comp);
	verbs_pd_put(ep->pd, ep->device_gone);
	if (ep->channel)
		rdma_destroy_event_channel(ep->channel);
	if (ep->epoll_fd >= 0)
		close(ep->epoll_fd);
	if (ep->event_fd >= 0)
		close(ep->event_fd);
	if (ep->base.window)
		munmap(ep->base.window, ep->base.window_bytes + VERBS_CREDIT_BYTES);
	if (ep->stage)
		munmap(ep->stage, ep->stage_bytes);
	free(ep);
}

void verbs_target_encode(struct verbs_ep *ep, struct rdma_cm_id *id, struct verbs_target *ret_t)
{
	ep->mtu.here = verbs_port_mtu(id);
	put_be64(ret_t->address, (uintptr_t)ep->base.window);
	put_be32(ret_t->rkey, ep->window_mr->rkey);
	put_be32(ret_t->mtu_bytes, ep->mtu.here);
}

void verbs_target_decode(struct verbs_lane *l, const struct verbs_target *t)
{
	l->remote_address = get_be64(t->address);
	l->remote_rkey = get_be32(t->rkey);
	l->ep->mtu.peer = get_be32(t->mtu_bytes);
}

int verbs_send_status(int fd, int err, uint64_t deadline_ns)
{
	struct verbs_status s;

	put_be32(s.magic, VERBS_MAGIC_STATUS);
	put_be16(s.version, VERBS_FORMAT_VERSION);
	put_be16(s.err, (uint16_t)-err);
	return setup_send(fd, &s, sizeof(s), deadline_ns);
}

int verbs_recv_status(int fd, uint64_t deadline_ns)
{
	struct verbs_status s;
	unsigned version;
	int r = setup_recv(fd, &s, sizeof(s), deadline_ns);

	return r < 0 ? r : verbs_status_decode(&s, &version);
}
