/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protection domains, and the arena's memory registered with one of them. rdma_cm opens each
 * device once for the whole process, so one domain a device serves all endpoints, and a region
 * is registered once, however many mirrors there are. Registering is the region pool's thread's;
 * here only the key of a region is looked up. Domain and registrations stay when the last endpoint
 * closes: after a lost connection they are still there. They go with their device.
 *
 * Threads: any. One lock for the table and the attachment, a leaf but for
 * region_pool_set_registrar under it.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTEND_NS (250 * NSEC_PER_MSEC)

/* rdma_cm closes the context of a device that was taken away when its last id goes: the anchor is
 * an id of our own, so that the context outlives what we made with it. By the anchor we also hear
 * that the device is taken away while no endpoint is open. */
struct verbs_pd {
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *anchor;
	struct ibv_pd *pd;
	unsigned users;
	bool gone;      /* the device was taken away */
	struct verbs_pd *next;
};

static pthread_mutex_t verbs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_pd *verbs_pds; /* verbs_lock */
static struct {                    /* verbs_lock */
	struct region_pool *pool;
	struct verbs_pd *pd;
	unsigned users;
} attached;

static void anchor_drop(struct verbs_pd *pd)
{
	if (pd->anchor)
		(void)rdma_destroy_id(pd->anchor);
	if (pd->channel)
		rdma_destroy_event_channel(pd->channel);
}

/*
 * The kernel takes a device away only once no process has it open, unless its driver can cut
 * processes off (rxe can't). rdma_cm closes the context of such a device only if it looks when the
 * device has left the kernel's list and another one is still on it. So the context, in which
 * nothing of ours is left, lets go of the device here: what rdma_cm still does with it fails and is
 * no harm.
 */
static void context_let_go(struct ibv_context *verbs)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	(void)dup3(null, verbs->async_fd, O_CLOEXEC);
	(void)dup3(null, verbs->cmd_fd, O_CLOEXEC);
	close(null);
}

static void pd_free(struct verbs_pd *pd)
{
	struct verbs_pd **p = &verbs_pds;

	while (*p != pd)
		p = &(*p)->next;
	*p = pd->next;
	ibv_dealloc_pd(pd->pd);
	if (pd->gone)
		context_let_go(pd->verbs);
	anchor_drop(pd);
	free(pd);
}

/* Binds an id to the device that id is bound to. */
static int anchor_hold(struct verbs_pd *pd, struct rdma_cm_id *id)
{
	union verbs_address a = { .sa = { .sa_family = AF_UNSPEC } };
	const struct sockaddr *local = rdma_get_local_addr(id);

	memcpy(&a, local, local->sa_family == AF_INET6 ? sizeof(a.in6) : sizeof(a.in));
	if (a.sa.sa_family == AF_INET6)
		a.in6.sin6_port = 0;
	else
		a.in.sin_port = 0;
	pd->channel = verbs_event_channel_open();
	if (!pd->channel || rdma_create_id(pd->channel, &pd->anchor, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(pd->anchor, &a.sa) != 0)
		return errno ? -errno : -EIO;
	return pd->anchor->verbs == id->verbs ? 0 : -ENODEV;
}

static int pd_create_locked(struct rdma_cm_id *id, struct verbs_pd **ret_pd)
{
	struct verbs_pd *pd = calloc(1, sizeof(*pd));
	int err;

	if (!pd)
		return -ENOMEM;
	pd->verbs = id->verbs;
	err = anchor_hold(pd, id);
	if (!err) {
		pd->pd = ibv_alloc_pd(id->verbs);
		err = pd->pd ? 0 : errno ? -errno : -EIO;
	}
	if (err) {
		anchor_drop(pd);
		free(pd);
		return err;
	}
	pd->next = verbs_pds;
	verbs_pds = pd;
	*ret_pd = pd;
	return 0;
}

int verbs_pd_get(struct rdma_cm_id *id, struct verbs_pd **ret_pd)
{
	struct verbs_pd *pd;
	int err = 0;

	pthread_mutex_lock(&verbs_lock);
	for (pd = verbs_pds; pd && pd->verbs != id->verbs; pd = pd->next)
		;
	if (!pd)
		err = pd_create_locked(id, &pd);
	if (!err) {
		pd->users++;
		*ret_pd = pd;
	}
	pthread_mutex_unlock(&verbs_lock);
	return err;
}


struct ibv_pd *verbs_pd_handle(struct verbs_pd *pd)
{
	return pd->pd;
}

static int registrar_add(void *ctx, void *base, size_t len, void **ret_handle)
{
	struct verbs_pd *pd = ctx;
	struct ibv_mr *mr = ibv_reg_mr(pd->pd, base, len, 0); /* read by sends only */

	if (!mr)
		return errno ? -errno : -EIO;
	*ret_handle = mr;
	return 0;
}

/* Memory of a GPU: sent from by its address here, though the device reads it by the dmabuf. */
static int registrar_add_dmabuf(void *ctx, int fd, uint64_t fd_off, void *base, size_t len,
				void **ret_handle)
{
	struct verbs_pd *pd = ctx;
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd->pd, fd_off, len, (uintptr_t)base, fd, 0);

	if (!mr)
		return errno ? -errno : -EIO;
	*ret_handle = mr;
	return 0;
}

static void registrar_remove(void *ctx, void *handle)
{
	(void)ctx;
	(void)ibv_dereg_mr(handle);
}

/* The pool is going, its registrations with it. */
static void registrar_gone(void *ctx)
{
	struct verbs_pd *pd = ctx;

	pthread_mutex_lock(&verbs_lock);
	if (attached.pd == pd)
		attached.pool = NULL, attached.pd = NULL;
	pthread_mutex_unlock(&verbs_lock);
}

static const struct region_registrar_ops verbs_registrar = {
	.add = registrar_add,
	.add_dmabuf = registrar_add_dmabuf,
	.remove = registrar_remove,
	.gone = registrar_gone,
};

/* Under the lock, nobody uses the attachment: its regions leave the device they were registered
 * with. */
static void attachment_end_locked(void)
{
	if (!attached.pd)
		return;
	region_pool_set_registrar(attached.pool, NULL, NULL);
	attached.pool = NULL;
	attached.pd = NULL;
}

/* A device that was taken away and that nobody uses any more: the process lets go of it. */
static bool pd_settle_locked(struct verbs_pd *pd)
{
	if (!pd->gone || pd->users > 0)
		return false;
	if (attached.pd == pd)
		attachment_end_locked();
	pd_free(pd);
	return true;
}

/* Has rdma_cm look which devices are left and forget those that are gone. */
static void forget_gone_devices(void)
{
	struct ibv_context **list = rdma_get_devices(NULL);

	if (list)
		rdma_free_devices(list);
}

void verbs_pd_put(struct verbs_pd *pd, bool device_gone)
{
	bool left;

	if (!pd)
		return;
	pthread_mutex_lock(&verbs_lock);
	pd->gone |= device_gone;
	pd->users--;
	left = pd_settle_locked(pd);
	pthread_mutex_unlock(&verbs_lock);
	if (left)
		forget_gone_devices();
}

/* What rdma_cm says of the device; endpoints in it hear the same themselves. */
static void anchor_attend_locked(struct verbs_pd *pd)
{
	struct rdma_cm_event *ev;

	while (rdma_get_cm_event(pd->channel, &ev) == 0) {
		pd->gone |= ev->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
		rdma_ack_cm_event(ev);
	}
}

void verbs_devices_attend(void)
{
	static _Atomic uint64_t looked_ns;
	uint64_t now_ns = transport_now_ns();
	struct verbs_pd *pd, *next;
	bool left = false;

	/* relaxed: at worst two threads look at once */
	if (now_ns - atomic_load_explicit(&looked_ns, memory_order_relaxed) < ATTEND_NS)
		return;
	/* Held over registrations and the opening of devices: sessions don't wait for that. */
	if (pthread_mutex_trylock(&verbs_lock) != 0)
		return;
	atomic_store_explicit(&looked_ns, now_ns, memory_order_relaxed);
	for (pd = verbs_pds; pd; pd = next) {
		next = pd->next;
		anchor_attend_locked(pd);
		left |= pd_settle_locked(pd);
	}
	pthread_mutex_unlock(&verbs_lock);
	if (left)
		forget_gone_devices();
}

bool verbs_memory_attach(struct region_pool *pool, struct verbs_pd *pd)
{
	bool ours;

	if (!pool)
		return false;
	pthread_mutex_lock(&verbs_lock);
	if (attached.pool != pool || attached.pd != pd) {
		if (attached.users == 0) {
			attachment_end_locked();
			attached.pool = pool;
			attached.pd = pd;
			region_pool_set_registrar(pool, &verbs_registrar, pd);
		}
	}
	ours = attached.pool == pool && attached.pd == pd;
	attached.users += ours;
	pthread_mutex_unlock(&verbs_lock);
	return ours;
}

void verbs_memory_detach(bool device_gone)
{
	pthread_mutex_lock(&verbs_lock);
	attached.pd->gone |= device_gone;
	if (--attached.users == 0 && attached.pd->gone)
		attachment_end_locked();
	pthread_mutex_unlock(&verbs_lock);
}

bool verbs_memory_lkey(struct region_pool *pool, const void *addr, size_t len, uint32_t *ret_lkey)
{
	struct ibv_mr *mr;

	if (!region_pool_find(pool, addr, len, (void **)&mr))
		return false;
	*ret_lkey = mr->lkey;
	return true;
}

/* No buffer is needed: a driver that knows dmabuf looks at the descriptor and says EBADF. */
static int dmabuf_try(struct ibv_device *device)
{
	struct ibv_context *ctx = ibv_open_device(device);
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_mr *mr = NULL;
	int err;

	errno = pd ? 0 : errno ? errno : EIO;
	if (pd)
		mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0);
	err = mr || errno == EBADF ? 0 : errno ? -errno : -EIO;
	if (mr)
		ibv_dereg_mr(mr);
	if (pd)
		ibv_dealloc_pd(pd);
	if (ctx)
		ibv_close_device(ctx);
	return err;
}

int verbs_dmabuf_check(const char *device)
{
	struct ibv_device **list;
	struct verbs_choice c;
	int count = 0, err = -ENODEV;

	if (verbs_choice_parse(device ? device : "", &c) < 0)
		return -ENODEV;
	list = ibv_get_device_list(&count);
	for (int i = 0; i < count && err; i++)
		if (verbs_choice_any(&c) || strcmp(ibv_get_device_name(list[i]), c.name) == 0)
			err = dmabuf_try(list[i]);
	if (list)
		ibv_free_device_list(list);
	return err;
}
