/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_REPLICATION_TRANSPORT_VERBS_H
#define KVFS_REPLICATION_TRANSPORT_VERBS_H
/*
 * What others ask of the verbs transport besides its ops: whether this machine has a device that
 * it could use (reads /sys only: opens no device, so it may be called before a fork), whether
 * one that it has open is being taken away, and what memory one locks and takes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERBS_DEVICE_NAME_BYTES 64
#define VERBS_TEXT_BYTES 256

/* What a lane asks of a device: a queue pair of so many requests each way, and a completion queue
 * of so many entries. kvfs doctor asks for the same. */
#define VERBS_LANE_SEND_WRS 2048
#define VERBS_LANE_RECEIVE_WRS 1064
#define VERBS_LANE_CQES (VERBS_LANE_SEND_WRS + VERBS_LANE_RECEIVE_WRS)

/*
 * A device as an option names it: NAME, NAME:PORT or NAME:PORT:GID (the index in the port's
 * table); an empty text is any. -EINVAL.
 */
struct verbs_choice {
	char name[VERBS_DEVICE_NAME_BYTES]; /* empty: any */
	unsigned port;                      /* 0: any */
	int gid_index;                      /* -1: any */
};
int verbs_choice_parse(const char *text, struct verbs_choice *ret_choice);

/*
 * Whether a device that fits has an active port with an address. text tells which, or what was
 * found instead and what to do: one sentence part, for "transport auto: …". 0, -ENODEV (no such
 * device), -ENETDOWN (no active port), -EADDRNOTAVAIL (no address).
 */
int verbs_available(const char *device, char *text, size_t cap);

/* A port of a device. */
struct verbs_port {
	char device[VERBS_DEVICE_NAME_BYTES];
	unsigned port;
};

/*
 * What the port had to send again so far: lost or refused on the way, by all that use it; it may
 * begin anew. False: it counts nothing of the kind. class_dir: in place of /sys/class; NULL: that.
 */
bool verbs_port_retries(const char *class_dir, const struct verbs_port *p, uint64_t *ret_retries);
/* The names of the counters that it sums, NULL at the end. */
extern const char *const verbs_retry_counters[];
/* The ports that count so, of a device that fits: at most max. */
unsigned verbs_counting_ports(const char *device, struct verbs_port *ret_ports, unsigned max);

/* What is asked of /sys/class is asked of this directory from now on; NULL: of that again. For
 * tests; one thread. */
void verbs_sys_use(const char *class_dir);

/*
 * Lets go of devices that are being taken away: until this process has, the kernel waits. Looks at
 * most four times a second, however often it is called. Any thread, often; no lock of the caller's
 * may be one that region_pool_set_registrar takes.
 */
void verbs_devices_attend(void);

/* What an endpoint of so many lanes locks, besides the values it sends from; remote: the peer's
 * window. At most. */
uint64_t verbs_locked_bytes(unsigned lanes, uint64_t window_bytes, uint64_t remote_bytes);

/*
 * Whether a device that fits registers memory of other devices (dmabuf): tried, without any. Opens
 * the device. -EOPNOTSUPP: it or the kernel can't; -ENODEV: no device; what else opening gives.
 */
int verbs_dmabuf_check(const char *device);

/* The text in memory that fits an errno of the RDMA side: its cause and the remedy; NULL: none
 * known. */
const char *verbs_remedy(int err);

#endif
