/* SPDX-License-Identifier: Apache-2.0 */
/* Processors, their interrupts, and the clock: see doctor.h. */
#include "fs/doctor/doctor_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

#define CPU "/sys/devices/system/cpu"
#define IDLE_MAX_US 20 /* waking takes about as long as a record to a mirror and back */

static void check_governor(struct doctor *d, const struct doctor_names *cpus)
{
	unsigned known = 0, slow = 0;
	char governor[32], other[32] = "";

	for (size_t i = 0; i < cpus->count; i++) {
		if (doctor_read(d, governor, sizeof(governor), CPU "/%s/cpufreq/scaling_governor",
				cpus->name[i]) != 0)
			continue;
		known++;
		if (strcmp(governor, "performance") != 0) {
			slow++;
			memcpy(other, governor, sizeof(other));
		}
	}
	if (known == 0)
		doctor_say(d, "cpu.governor", DOCTOR_NA, "", "frequencies are not this kernel's "
			   "affair (virtual "
			   "machine, or the firmware's)");
	else if (slow > 0)
		doctor_say(d, "cpu.governor", DOCTOR_WARN, "scripts/tune-host (cpupower "
			   "frequency-set -g performance)",
			   "%u of %u processors have governor %s: short bursts run slowly",
			   slow, known, other);
	else
		doctor_say(d, "cpu.governor", DOCTOR_OK, "", "governor performance on %u "
			   "processors", known);
}

/* Latency of the deepest state that is not switched off. */
static bool deepest_idle(const struct doctor *d, const char *cpu, int64_t *ret_us, char name[32])
{
	struct doctor_names states;
	int64_t us, off;

	doctor_list(d, &states, "state", CPU "/%s/cpuidle", cpu);
	*ret_us = 0;
	for (size_t i = 0; i < states.count; i++) {
		off = 0;
		doctor_read_i64(d, &off, CPU "/%s/cpuidle/%s/disable", cpu, states.name[i]);
		if (off || doctor_read_i64(d, &us, CPU "/%s/cpuidle/%s/latency", cpu,
		    states.name[i]) != 0 ||
		    us < *ret_us)
			continue;
		*ret_us = us;
		if (doctor_read(d, name, 32, CPU "/%s/cpuidle/%s/name", cpu, states.name[i]) != 0)
			snprintf(name, 32, "%.31s", states.name[i]);
	}
	return states.count > 0;
}

static void check_idle(struct doctor *d, const struct doctor_names *cpus)
{
	int64_t worst_us = 0, us;
	char worst[32] = "", name[32] = "";
	bool known = false;

	for (size_t i = 0; i < cpus->count; i++) {
		if (!deepest_idle(d, cpus->name[i], &us, name))
			continue;
		known = true;
		if (us > worst_us) {
			worst_us = us;
			memcpy(worst, name, sizeof(worst));
		}
	}
	if (!known)
		doctor_say(d, "cpu.idle", DOCTOR_NA, "", "no idle states are known here (virtual "
			   "machine)");
	else if (worst_us > IDLE_MAX_US)
		doctor_say(d, "cpu.idle", DOCTOR_WARN, "scripts/tune-host --idle switches deep "
			   "states off, at the cost "
			   "of power; or give a poll_us=", "idle state %s takes %lld us to wake "
			   "from", worst,
			   (long long)worst_us);
	else
		doctor_say(d, "cpu.idle", DOCTOR_OK, "", "the deepest idle state takes %lld us "
			   "to wake from",
			   (long long)worst_us);
}

void doctor_check_cpu(struct doctor *d)
{
	struct doctor_names cpus, kept;

	doctor_list(d, &cpus, "cpu", CPU);
	kept.count = 0;
	for (size_t i = 0; i < cpus.count; i++) { /* not "cpufreq", "cpuidle" */
		if (cpus.name[i][3] >= '0' && cpus.name[i][3] <= '9')
			memcpy(kept.name[kept.count++], cpus.name[i], DOCTOR_NAME_BYTES);
	}
	check_governor(d, &kept);
	check_idle(d, &kept);
}

/* Bits set in a list "0-3,8". */
static unsigned list_count(const char *list)
{
	unsigned n = 0;

	while (*list >= '0' && *list <= '9') {
		char *end;
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		n += last >= first ? (unsigned)(last - first + 1) : 0;
		list = *end == ',' ? end + 1 : end;
	}
	return n;
}

/* Interrupts of a network interface: all on one processor are that processor's load alone. */
static void check_interface(struct doctor *d, const char *netdev, const struct doctor_names *irqs,
			    unsigned cpus)
{
	char affinity[256], first[256] = "";
	bool spread = false;
	unsigned known = 0;

	for (size_t i = 0; i < irqs->count; i++) {
		if (doctor_read(d, affinity, sizeof(affinity),
		    "/proc/irq/%s/effective_affinity_list",
				irqs->name[i]) != 0 &&
		    doctor_read(d, affinity, sizeof(affinity), "/proc/irq/%s/smp_affinity_list",
				irqs->name[i]) != 0)
			continue;
		known++;
		if (known == 1)
			memcpy(first, affinity, sizeof(first));
		spread = spread || strcmp(first, affinity) != 0 || list_count(affinity) > 1;
	}
	if (known == 0)
		doctor_say(d, "cpu.irq", DOCTOR_NA, "", "%s: where its interrupts go is not "
			   "known", netdev);
	else if (known > 1 && cpus > 1 && !spread)
		doctor_say(d, "cpu.irq", DOCTOR_WARN, doctor_has(d, "/run/irqbalance") ?
			   "scripts/tune-host spreads them; stop irqbalance, which would undo it" :
			   "scripts/tune-host spreads them",
			   "%s: all %u interrupts go to processor %s", netdev, known, first);
	else
		doctor_say(d, "cpu.irq", DOCTOR_OK, "", "%s: %u interrupts%s", netdev, known,
			   known > 1 && spread ? " over several processors" : "");
}

void doctor_check_irq(struct doctor *d)
{
	struct doctor_names netdevs, irqs;
	char online[256] = "0";
	unsigned found = 0;

	doctor_read(d, online, sizeof(online), CPU "/online");
	doctor_list(d, &netdevs, "", "/sys/class/net");
	for (size_t i = 0; i < netdevs.count; i++) {
		doctor_list(d, &irqs, "", "/sys/class/net/%s/device/msi_irqs", netdevs.name[i]);
		if (irqs.count == 0) /* virtio: its PCI device is one above */
			doctor_list(d, &irqs, "", "/sys/class/net/%s/device/../msi_irqs",
			netdevs.name[i]);
		if (irqs.count == 0)
			continue;
		found++;
		check_interface(d, netdevs.name[i], &irqs, list_count(online));
	}
	if (found == 0)
		doctor_say(d, "cpu.irq", DOCTOR_NA, "", "no network interface with interrupts of "
			   "its own");
}

static void check_source(struct doctor *d)
{
	static const char *const quick[] = { "tsc", "kvm-clock", "arch_sys_counter", "timebase",
					     "hyperv_clocksource_tsc_page", "riscv_clocksource" };
	char source[64];

	if (doctor_read(d, source, sizeof(source),
			"/sys/devices/system/clocksource/clocksource0/current_clocksource") != 0) {
		doctor_say(d, "clock.source", DOCTOR_NA, "", "the clock source is not known");
		return;
	}
	for (size_t i = 0; i < sizeof(quick) / sizeof(quick[0]); i++) {
		if (strcmp(source, quick[i]) == 0) {
			doctor_say(d, "clock.source", DOCTOR_OK, "", "%s", source);
			return;
		}
	}
	doctor_say(d, "clock.source", DOCTOR_WARN, "echo tsc "
		   ">/sys/devices/system/clocksource/clocksource0/"
		   "current_clocksource, where the kernel offers it", "%s: reading the time "
		   "takes a system call",
		   source);
}

/* Only the running kernel knows; an unsynchronised clock makes records' times wrong, nothing
 * else. */
static void check_sync(struct doctor *d)
{
	struct timex t = { .modes = 0 };

	if (!d->live || adjtimex(&t) < 0)
		doctor_say(d, "clock.sync", DOCTOR_NA, "", "whether the clock is right can only "
			   "be asked on the machine");
	else if (t.status & STA_UNSYNC)
		doctor_say(d, "clock.sync", DOCTOR_WARN, "run chrony or systemd-timesyncd; kvfs "
			   "itself does not depend "
			   "on equal clocks", "the clock is not synchronised: times of files "
			   "differ between nodes");
	else
		doctor_say(d, "clock.sync", DOCTOR_OK, "", "the clock is synchronised");
}

void doctor_check_clock(struct doctor *d)
{
	check_source(d);
	check_sync(d);
}
