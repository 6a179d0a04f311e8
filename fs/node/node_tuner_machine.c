/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine counts for the tuner: CPU time of all programs; of the RDMA device bytes sent,
 * retries, link rate and PCIe width; of network interfaces bytes and speed. What memory takes is
 * measured, nobody counts it. What is not there stays unknown. Files of /proc and /sys, opened
 * anew each time: none waits. kv-tuner.
 */
#include "fs/node/node_tuner_internal.h"

#include "common/clock.h"

#include <dirent.h>
#include <libpmem.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CLASS_DIR "/sys/class"
#define IB_DIR CLASS_DIR "/infiniband"
#define NET_DIR CLASS_DIR "/net"
#define MEASURE_FROM_BYTES (256U << 10) /* stays in the caches */
#define MEASURE_TO_BYTES (16U << 20)
#define MEASURE_ROUNDS 4
#define IB_DATA_UNIT 4          /* port_xmit_data counts 32-bit words */
#define PCIE_GT_TO_BYTES (1e9 / 8 * 128 / 130) /* a lane's, from GT/s, above generation 2 */

static bool read_text(const char *root, const char *dir, const char *name, char *out, size_t cap)
{
	char path[PATH_MAX];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s%s/%s", root, dir, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(out, (int)cap, f) != NULL;
	fclose(f);
	return ok;
}

/* The number a file begins with; 0: none. */
static double read_number(const char *root, const char *dir, const char *name)
{
	char text[64];
	double value = 0;

	if (!read_text(root, dir, name, text, sizeof(text)) || sscanf(text, "%lf", &value) != 1)
		return 0;
	return value;
}

/* The one entry of IB_DIR; false: none, or more than one. */
static bool only_device(const char *root, char *out, size_t cap)
{
	char path[PATH_MAX];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s%s", root, IB_DIR);
	d = opendir(path);
	if (!d)
		return false;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.' && n++ == 0)
			snprintf(out, cap, "%.63s", e->d_name);
	closedir(d);
	return n == 1;
}

void node_tuner_machine_open(struct node_tuner_machine *m, const char *root, const char *device)
{
	char name[64], dir[128];
	unsigned port = 1;

	*m = (struct node_tuner_machine){ .root = root };
	if (sched_getaffinity(0, sizeof(m->set), &m->set) == 0)
		m->cpus = (unsigned)CPU_COUNT(&m->set);
	if (device && *device) {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(device, ":"), device);
		if (strchr(device, ':'))
			(void)sscanf(strchr(device, ':'), ":%u", &port);
	} else if (!only_device(root, name, sizeof(name))) {
		return;
	}
	memcpy(m->rdma.device, name, sizeof(m->rdma.device));
	m->rdma.port = port;
	snprintf(dir, sizeof(dir), IB_DIR "/%s", name);
	snprintf(m->port, sizeof(m->port), "%s/ports/%u", dir, port);
	m->link_bytes = read_number(root, m->port, "rate") * 1e9 / 8; /* "100 Gb/sec (4X EDR)" */
	m->pcie_bytes = read_number(root, dir, "device/current_link_speed") *
			read_number(root, dir, "device/current_link_width") * PCIE_GT_TO_BYTES;
}

/* Busy clock ticks of a line of /proc/stat. */
static bool busy_ticks(const char *line, unsigned long long *ret_ticks)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;

	if (sscanf(line, "%*s %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
		   &iowait, &irq, &softirq) != 7)
		return false;
	*ret_ticks = user + nice + system + irq + softirq;
	return true;
}

/* Of the processors that this process may use: what others do elsewhere takes nothing from it. A
 * machine that doesn't list them (some containers): of all. */
static void read_cpu(const struct node_tuner_machine *m, struct tuner_snapshot *snap)
{
	unsigned long long ticks, all = 0, ours = 0;
	bool any = false, any_ours = false;
	long hz = sysconf(_SC_CLK_TCK);
	char path[PATH_MAX], line[256];
	unsigned cpu;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/stat", m->root);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && strncmp(line, "cpu", 3) == 0) {
		if (!busy_ticks(line, &ticks))
			continue;
		if (line[3] == ' ') {
			all = ticks;
			any = true;
		} else if (sscanf(line, "cpu%u", &cpu) == 1 && cpu < CPU_SETSIZE &&
			   CPU_ISSET(cpu, &m->set)) {
			ours += ticks;
			any_ours = true;
		}
	}
	if (f)
		fclose(f);
	if (hz <= 0 || !(any || any_ours))
		return;
	snap->counter[TUNER_MACHINE_NS] = (any_ours ? ours : all) * (NSEC_PER_SEC / (uint64_t)hz);
	snap->have |= 1U << TUNER_MACHINE_NS;
}

void node_tuner_machine_read(const struct node_tuner_machine *m, struct tuner_snapshot *snap)
{
	char text[64];
	unsigned long long words;

	read_cpu(m, snap);
	snap->gauge[TUNER_CPUS] = m->cpus;
	snap->gauge[TUNER_LINK_CAPACITY] = m->link_bytes;
	snap->gauge[TUNER_PCIE_CAPACITY] = m->pcie_bytes;
	if (m->port[0] &&
	    read_text(m->root, m->port, "counters/port_xmit_data", text, sizeof(text)) &&
	    sscanf(text, "%llu", &words) == 1) {
		snap->counter[TUNER_LINK_BYTES] = words * IB_DATA_UNIT;
		snap->have |= 1U << TUNER_LINK_BYTES;
	}
}

bool node_tuner_machine_retries(const struct node_tuner_machine *m, uint64_t *ret_retries)
{
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s" CLASS_DIR, m->root);
	return m->port[0] && verbs_port_retries(dir, &m->rdma, ret_retries);
}

bool node_tuner_machine_nic(const struct node_tuner_machine *m, const char *name,
			    uint64_t *ret_sent, double *ret_bytes_per_s)
{
	unsigned long long sent;
	char dir[64], text[64];
	double speed;

	*ret_bytes_per_s = 0;
	if (!name[0] || strchr(name, '/'))
		return false;
	snprintf(dir, sizeof(dir), NET_DIR "/%s", name);
	speed = read_number(m->root, dir, "speed"); /* Mb/s; -1, or an error: it has none */
	if (speed > 0)
		*ret_bytes_per_s = speed * 1e6 / 8;
	if (!read_text(m->root, dir, "statistics/tx_bytes", text, sizeof(text)) ||
	    sscanf(text, "%llu", &sent) != 1)
		return false;
	*ret_sent = sent;
	return true;
}

static double thread_seconds(void)
{
	struct timespec ts = { 0 };

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Stores that pass the caches by: so the figure is memory's, however large a cache is. By the
 * thread's own time: a machine that is busy looks as fast as one that is not. */
void node_tuner_machine_measure(struct node_tuner_machine *m)
{
	size_t bytes = MEASURE_FROM_BYTES + MEASURE_TO_BYTES;
	uint8_t *from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	double best = 0;

	if (from == MAP_FAILED)
		return;
	(void)madvise(from, bytes, MADV_HUGEPAGE);
	memset(from, 1, bytes); /* its pages are there */
	for (int round = 0; round < MEASURE_ROUNDS; round++) {
		double began = thread_seconds(), took;

		for (size_t off = MEASURE_FROM_BYTES; off < bytes; off += MEASURE_FROM_BYTES)
			pmem_memcpy(from + off, from, MEASURE_FROM_BYTES, PMEM_F_MEM_NONTEMPORAL);
		took = thread_seconds() - began;
		if (took > 0 && MEASURE_TO_BYTES / took > best)
			best = MEASURE_TO_BYTES / took;
	}
	munmap(from, bytes);
	m->memory_bytes = best;
}
