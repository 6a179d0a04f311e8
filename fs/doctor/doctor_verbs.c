/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations each RDMA device supports, by trying them: queue pairs of both kinds, inline data,
 * registering memory, dmabuf. On the running machine only.
 */
#include "fs/doctor/doctor_internal.h"

#include "common/units.h"
#include "replication/transport/transport_verbs.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <sys/mman.h>

#define INLINE_BYTES 64
#define TRY_BYTES (2ULL << 20)
#define QPS_MIN 64 /* 40 lanes to a mirror, and some */

static void judge_operations(struct doctor *d, const struct doctor_verbs *v)
{
	char most[UNITS_TEXT_BYTES];

	if (v->max_qp_wr < VERBS_LANE_SEND_WRS || v->max_cqe < VERBS_LANE_CQES)
		doctor_say(d, "rdma.operations", DOCTOR_FAIL, "use another device, or "
			   "transport=tcp", "%s allows %d requests a queue pair and %d entries a "
			   "completion queue, a lane needs %d and %d", v->device, v->max_qp_wr,
			   v->max_cqe, VERBS_LANE_SEND_WRS, VERBS_LANE_CQES);
	else if (!v->rc)
		doctor_say(d, "rdma.operations", DOCTOR_FAIL, "use another device, or "
			   "transport=tcp", "%s: no reliable connection (RC) can be made",
			   v->device);
	else if (v->register_error)
		doctor_say(d, "rdma.operations", DOCTOR_FAIL, "ulimit -l unlimited; a unit file: "
			   "LimitMEMLOCK=infinity", "%s: memory can't be registered: %s",
			   v->device, strerror(-v->register_error));
	else if (v->max_qp < QPS_MIN)
		doctor_say(d, "rdma.operations", DOCTOR_WARN, "give fewer lanes=",
			   "%s allows only %d queue pairs of %d requests", v->device, v->max_qp,
			   v->max_qp_wr);
	else
		doctor_say(d, "rdma.operations", DOCTOR_OK, "", "%s: RC%s%s, %d queue pairs of "
			   "%d requests, %d regions of up to %s",
			   v->device, v->uc ? ", UC" : ", no UC (load hints go by RC)",
			   v->write_imm_inline ? ", inline" : ", no inline data", v->max_qp,
			   v->max_qp_wr,
			   v->max_mr, units_format_size(v->max_mr_bytes, most));
}

void doctor_verbs_judge(struct doctor *d, const struct doctor_verbs *v)
{
	if (v->open_error) {
		doctor_say(d, "rdma.operations", DOCTOR_FAIL, v->open_error == -EACCES ||
			   v->open_error == -EPERM ?
			   "run as root, or give the user /dev/infiniband/uverbs*" :
			   "install the device's provider (apt-get install ibverbs-providers)",
			   "%s can't be opened: %s", v->device, strerror(-v->open_error));
		return;
	}
	judge_operations(d, v);
	doctor_say(d, "rdma.memory", v->dmabuf_error ? DOCTOR_NA : DOCTOR_OK,
		   v->dmabuf_error ? "memory=gpu needs a device and kernel with dmabuf; host "
		   "memory is used instead" : "",
		   "%s: dmabuf %s, registering on demand (ODP) %s", v->device,
		   v->dmabuf_error ? "not supported" : "supported", v->odp ? "supported" : "not "
		   "supported");
}

static bool try_qp(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type, uint32_t
		   inline_bytes)
{
	bool lane = type == IBV_QPT_RC;
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = lane ? VERBS_LANE_SEND_WRS : 16,
			 .max_recv_wr = lane ? VERBS_LANE_RECEIVE_WRS : 16,
			 .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = inline_bytes },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	if (!qp)
		return false;
	ibv_destroy_qp(qp);
	return true;
}

static int try_register(struct ibv_pd *pd)
{
	void *p = mmap(NULL, TRY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	int err = 0;

	if (p == MAP_FAILED)
		return -errno;
	mr = ibv_reg_mr(pd, p, TRY_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		err = -errno;
	else
		ibv_dereg_mr(mr);
	munmap(p, TRY_BYTES);
	return err;
}

/* No buffer is needed: a driver that knows dmabuf looks at the descriptor and says EBADF. */
static int try_dmabuf(struct ibv_pd *pd)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);

	if (mr)
		ibv_dereg_mr(mr);
	return mr || errno == EBADF ? 0 : -errno;
}

static void try_device(struct ibv_context *ctx, struct doctor_verbs *v)
{
	struct ibv_device_attr_ex attr = { 0 };
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	int err = pd ? 0 : errno;
	struct ibv_cq *cq = ibv_create_cq(ctx, VERBS_LANE_CQES, NULL, NULL, 0);
	bool holds_lane = cq != NULL;

	if (!cq) /* what it is like otherwise can still be said */
		cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	if (!cq && !err)
		err = errno;
	if (ibv_query_device_ex(ctx, NULL, &attr) == 0) {
		v->max_qp = attr.orig_attr.max_qp;
		v->max_qp_wr = attr.orig_attr.max_qp_wr;
		v->max_cqe = attr.orig_attr.max_cqe;
		v->max_mr = attr.orig_attr.max_mr;
		v->max_mr_bytes = attr.orig_attr.max_mr_size;
		v->odp = (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
	}
	if (pd && cq) {
		v->rc = holds_lane && try_qp(pd, cq, IBV_QPT_RC, 0);
		v->uc = try_qp(pd, cq, IBV_QPT_UC, 0);
		v->write_imm_inline = try_qp(pd, cq, IBV_QPT_RC, INLINE_BYTES);
		v->register_error = try_register(pd);
		v->dmabuf_error = try_dmabuf(pd);
	} else {
		v->open_error = -err;
	}
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
}

void doctor_check_verbs(struct doctor *d)
{
	struct ibv_device **list;
	int count = 0;

	if (!doctor_has_rdma(d))
		return;
	list = d->live ? ibv_get_device_list(&count) : NULL;
	if (count == 0)
		doctor_say(d, "rdma.operations", d->live ? DOCTOR_FAIL : DOCTOR_NA,
			   d->live ? "apt-get install ibverbs-providers; modprobe ib_uverbs" : "",
			   d->live ? "the verbs library finds no device" :
			   "a device's operations can only be tried on its machine");
	for (int i = 0; i < count; i++) {
		struct doctor_verbs v = { 0 };
		struct ibv_context *ctx = ibv_open_device(list[i]);

		snprintf(v.device, sizeof(v.device), "%.63s", ibv_get_device_name(list[i]));
		if (ctx) {
			try_device(ctx, &v);
			ibv_close_device(ctx);
		} else {
			v.open_error = errno ? -errno : -EIO;
		}
		doctor_verbs_judge(d, &v);
	}
	if (list)
		ibv_free_device_list(list);
}
