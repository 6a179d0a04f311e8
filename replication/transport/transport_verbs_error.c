/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fails on the RDMA side, in words: the cause and what to do about it. Pure but for the
 * thread-local sentence that set-up returns. Any thread.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

int verbs_status_errno(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_WR_FLUSH_ERR:
		return -ECONNRESET;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return -ENOBUFS;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_INV_RD_REQ_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return -EPROTO;
	default:
		return -EIO;
	}
}

const char *verbs_remedy(int err)
{
	switch (err < 0 ? -err : err) {
	case ENOMEM:
		return "raise the limit of locked memory (ulimit -l, LimitMEMLOCK=) or lower "
		       "mr_cache_size= and ring=";
	case EIO:
		return "look for the device in dmesg, check its firmware and cable, reload its "
		       "driver";
	case ETIMEDOUT:
		return "check cable, switch and MTU on the way; on a lossy or long network raise "
		       "ack_timeout=";
	case ENODEV:
		return "load a driver (for Soft-RoCE: modprobe rdma_rxe; rdma link add rxe0 type "
		       "rxe netdev NAME), or "
		       "use transport=tcp";
	case EACCES:
	case EPERM:
		return "give this user read and write access to /dev/infiniband/*";
	case ENOENT:
		return "load the kernel modules rdma_ucm and ib_uverbs";
	default:
		return NULL;
	}
}

const char *verbs_why(int err, const char *fmt, ...)
{
	static _Thread_local char text[VERBS_TEXT_BYTES + 256];
	const char *remedy = verbs_remedy(err);
	char what[VERBS_TEXT_BYTES], limit[64] = "";
	struct rlimit rl;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (err == -ENOMEM && getrlimit(RLIMIT_MEMLOCK, &rl) == 0 && rl.rlim_cur != RLIM_INFINITY)
		snprintf(limit, sizeof(limit), ", may lock %llu KiB",
			 (unsigned long long)rl.rlim_cur >> 10);
	snprintf(text, sizeof(text), "%s (%s%s)%s%s", what, strerror(-err), limit,
		 remedy ? ": " : "", remedy ? remedy : "");
	return text;
}

const char *verbs_formats_why(const char *peer, unsigned version)
{
	return verbs_why(-EPROTONOSUPPORT,
			 "%s's kvfs has version %u%s of the RDMA set-up, this one version %u; "
			 "install the same kvfs on both", peer,
			 version ? version : VERBS_FORMAT_MUTE, version ? "" : " or older",
			 VERBS_FORMAT_VERSION);
}

void verbs_status_why(const struct ibv_wc *wc, unsigned lane, char *out, size_t cap)
{
	const char *remedy = verbs_remedy(verbs_status_errno(wc->status));

	snprintf(out, cap, "queue pair %#x of lane %u: %s (status %d, vendor error %#x)%s%s",
		 wc->qp_num, lane, ibv_wc_status_str(wc->status), (int)wc->status, wc->vendor_err,
		 remedy ? ": " : "", remedy ? remedy : "");
}
