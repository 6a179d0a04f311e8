/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a port of an RDMA device counts of packets that it had to send again: hw_counters in sysfs,
 * of all its users; a queue pair tells nothing. See transport_verbs.h. Any thread; files of /sys,
 * opened anew each time.
 */
#include "replication/transport/transport_verbs_internal.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 512

/* rxe; mlx5; bnxt_re. Of one cause a driver has one name, so the sum counts nothing twice.
 * What the port noticed of its peers' losses (out_of_sequence) is not in it: they count that. */
const char *const verbs_retry_counters[] = {
	"completer_retry_err", "rcvd_rnr_err",
	"local_ack_timeout_err", "packet_seq_err", "rnr_nak_retry_err",
	"to_retransmits", "seq_err_naks_rcvd", "rnr_naks_rcvd",
	NULL,
};

bool verbs_port_retries(const char *class_dir, const struct verbs_port *p, uint64_t *ret_retries)
{
	char path[PATH_BYTES];
	bool known = false;
	uint64_t sum = 0;

	for (const char *const *name = verbs_retry_counters; *name; name++) {
		uint64_t value;
		FILE *f;

		snprintf(path, sizeof(path), "%s/infiniband/%s/ports/%u/hw_counters/%s",
			 verbs_sys_class(class_dir), p->device, p->port, *name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fscanf(f, "%" SCNu64, &value) == 1) {
			known = true;
			sum += value;
		}
		fclose(f);
	}
	if (known)
		*ret_retries = sum;
	return known;
}

/* The device's ports that are a choice's, and count. */
static unsigned list_device(const struct verbs_choice *c, const char *device,
			    struct verbs_port *ret_ports, unsigned max)
{
	char path[PATH_BYTES];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/infiniband/%s/ports", verbs_sys_class(NULL), device);
	d = opendir(path);
	while (d && n < max && (e = readdir(d))) {
		unsigned port = (unsigned)strtoul(e->d_name, NULL, 10);
		uint64_t retries;

		if (port == 0 || (c->port && c->port != port))
			continue;
		ret_ports[n].port = port;
		snprintf(ret_ports[n].device, sizeof(ret_ports[n].device), "%s", device);
		n += verbs_port_retries(NULL, &ret_ports[n], &retries);
	}
	if (d)
		closedir(d);
	return n;
}

unsigned verbs_counting_ports(const char *device, struct verbs_port *ret_ports, unsigned max)
{
	struct verbs_choice c;
	char path[PATH_BYTES];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	if (verbs_choice_parse(device ? device : "", &c) < 0)
		return 0;
	snprintf(path, sizeof(path), "%s/infiniband", verbs_sys_class(NULL));
	d = opendir(path);
	while (d && n < max && (e = readdir(d)))
		if (e->d_name[0] != '.' && strlen(e->d_name) < VERBS_DEVICE_NAME_BYTES &&
		    (verbs_choice_any(&c) || strcmp(c.name, e->d_name) == 0))
			n += list_device(&c, e->d_name, &ret_ports[n], max - n);
	if (d)
		closedir(d);
	return n;
}
