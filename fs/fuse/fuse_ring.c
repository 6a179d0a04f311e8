/* SPDX-License-Identifier: Apache-2.0 */
/* The rings together, from setting up to leaving: see fuse_ring.h. Errors: those of
 * io_uring_setup(2) and of the kernel's REGISTER command. */
#include "fs/fuse/fuse_ring_internal.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/thread.h"
#include "common/units.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define RINGS_BEGIN_NS (5 * NSEC_PER_SEC)
#define RINGS_MAX 1024

/* First line of a file of the kernel's; false: not there. */
static bool ring_read_line(const char *path, char *line, size_t cap)
{
	FILE *f = fopen(path, "re");
	bool ok = f && fgets(line, (int)cap, f);

	if (f)
		fclose(f);
	if (ok)
		line[strcspn(line, "\n")] = '\0';
	return ok;
}

bool fuse_rings_offered(struct fs *fs)
{
	char line[16];

	if (!ring_read_line("/sys/module/fuse/parameters/enable_uring", line, sizeof(line)))
		fs->rings_why = "needs Linux 6.14 or later";
	else if (line[0] != 'Y' && line[0] != '1')
		fs->rings_why = "off: the module parameter fuse.enable_uring is N";
	else
		return true;
	return false;
}

/* The kernel wants a queue for each processor that there may ever be: the last of "0-N", plus
 * one. 0: unknown. */
static unsigned ring_processors(void)
{
	char line[64], *last;
	uint64_t n;

	if (!ring_read_line("/sys/devices/system/cpu/possible", line, sizeof(line)))
		return 0;
	last = strpbrk(line, ",-") ? line + strlen(line) : line;
	while (last > line && last[-1] != '-' && last[-1] != ',')
		last--;
	return units_parse_u64(last, 0, RINGS_MAX - 1, &n) == 0 ? (unsigned)n + 1 : 0;
}

static int ring_create(struct fuse_rings *rings, unsigned qid)
{
	struct ring *r = &rings->rings[qid];
	size_t each = RING_LEAD_BYTES + rings->payload_bytes;
	char name[24];

	r->rings = rings;
	r->qid = qid;
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->entries = calloc(RING_ENTRIES, sizeof(*r->entries));
	r->headers = calloc(RING_ENTRIES, sizeof(*r->headers));
	r->memory = mmap(NULL, RING_ENTRIES * each, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->memory == MAP_FAILED)
		r->memory = NULL;
	if (r->wake_fd < 0 || !r->entries || !r->headers || !r->memory)
		return -ENOMEM;
	r->memory_bytes = RING_ENTRIES * each;
	for (unsigned i = 0; i < RING_ENTRIES; i++)
		r->entries[i] = (struct ring_entry){
			.ring = r,
			.headers = &r->headers[i],
			.payload = r->memory + i * each + RING_LEAD_BYTES,
		};
	snprintf(name, sizeof(name), "kv-ring-%u", qid);
	r->started = thread_start(&r->thread, name, ring_thread, r) == 0;
	return r->started ? 0 : -EAGAIN;
}

/* What libfuse reads: the INIT request passes here, which says whether the kernel would use
 * rings. */
static ssize_t ring_read(int fd, void *buf, size_t bytes, void *userdata)
{
	struct fuse_rings *rings = ((struct fs *)userdata)->rings;
	const struct fuse_in_header *in = buf;
	uint32_t flags, flags2;
	ssize_t len = read(fd, buf, bytes);

	if (len < (ssize_t)(sizeof(*in) + FUSE_RING_INIT_IN_FLAGS2_OFF + sizeof(flags2)) ||
	    in->opcode != FUSE_INIT)
		return len;
	memcpy(&flags, (uint8_t *)buf + sizeof(*in) + FUSE_RING_INIT_FLAGS_OFF, sizeof(flags));
	memcpy(&flags2, (uint8_t *)buf + sizeof(*in) + FUSE_RING_INIT_IN_FLAGS2_OFF,
	       sizeof(flags2));
	rings->init_offers = (flags & FUSE_RING_INIT_EXT) && (flags2 & FUSE_RING_INIT_FLAGS2);
	return len;
}

static const struct fuse_custom_io ring_io = { .writev = ring_writev, .read = ring_read };

/* Under rings->lock: until *count reaches all, or a failure, or the deadline. */
static int rings_await_locked(struct fuse_rings *rings, const unsigned *count)
{
	uint64_t deadline = clock_mono_ns() + RINGS_BEGIN_NS;
	int err = 0;

	while (*count < rings->count && !rings->err && !err)
		err = thread_cond_wait_until(&rings->changed, &rings->lock, deadline);
	return rings->err ? rings->err : err;
}

int fuse_rings_create(struct fs *fs, struct fuse_rings **ret_rings)
{
	unsigned count = ring_processors();
	struct fuse_rings *rings =
	    count ? calloc(1, sizeof(*rings) + count * sizeof(rings->rings[0])) : NULL;
	int err = 0;

	if (!rings)
		return count ? -ENOMEM : -ENOTSUP;
	rings->fs = fs;
	rings->fd = fuse_session_fd(fs->se);
	rings->payload_bytes = RECORD_DATA_MAX;
	rings->count = count;
	pthread_mutex_init(&rings->lock, NULL);
	thread_cond_init(&rings->changed);
	err = ring_wait_init(&rings->wait, fs);
	for (unsigned i = 0; i < count && !err; i++)
		err = ring_create(rings, i);
	if (!err) {
		pthread_mutex_lock(&rings->lock);
		err = rings_await_locked(rings, &rings->ready);
		pthread_mutex_unlock(&rings->lock);
	}
	if (!err && fuse_session_custom_io(fs->se, &ring_io, rings->fd) != 0)
		err = -ENOMEM;
	if (err) {
		fuse_rings_stop(rings, true);
		fuse_rings_destroy(rings);
		return err;
	}
	*ret_rings = rings;
	return 0;
}

int fuse_rings_begin(struct fuse_rings *rings)
{
	uint64_t deadline = clock_mono_ns() + RINGS_BEGIN_NS;
	int err = 0;

	pthread_mutex_lock(&rings->lock);
	while (!rings->init_done && (!err || rings->promised))
		err = thread_cond_wait_until(&rings->changed, &rings->lock, deadline);
	if (rings->init_done)
		err = 0;
	if (!err && !rings->promised)
		err = -ENOTSUP;
	rings->order = err ? RINGS_ABANDONED : RINGS_BEGIN;
	if (!err)
		atomic_fetch_add(&rings->fs->workers_running, rings->count);
	pthread_cond_broadcast(&rings->changed);
	/* Without a deadline: registering waits for nothing, and the kernel, which was promised
	 * rings, takes no request before all have or one is refused. */
	while (!err && rings->begun < rings->count && !(err = rings->err))
		pthread_cond_wait(&rings->changed, &rings->lock);
	pthread_mutex_unlock(&rings->lock);
	return err ? err : (int)rings->count;
}

void fuse_rings_stop(struct fuse_rings *rings, bool now)
{
	uint64_t one = 1;

	pthread_mutex_lock(&rings->lock);
	if (rings->order == RINGS_NEW)
		rings->order = RINGS_ABANDONED;
	pthread_cond_broadcast(&rings->changed);
	pthread_mutex_unlock(&rings->lock);
	if (now)
		rings->stopping = true;
	for (unsigned i = 0; i < rings->count && now; i++)
		if (rings->rings[i].started &&
		    write(rings->rings[i].wake_fd, &one, sizeof(one)) < 0)
			diag_debug("eventfd: %s", strerror(errno));
	for (unsigned i = 0; i < rings->count; i++) {
		if (rings->rings[i].started)
			pthread_join(rings->rings[i].thread, NULL);
		rings->rings[i].started = false;
	}
	ring_wait_stop(&rings->wait);
}

void fuse_rings_destroy(struct fuse_rings *rings)
{
	if (!rings)
		return;
	for (unsigned i = 0; i < rings->count; i++) {
		struct ring *r = &rings->rings[i];

		if (r->memory)
			munmap(r->memory, r->memory_bytes);
		if (r->wake_fd > 0)
			close(r->wake_fd);
		free(r->headers);
		free(r->entries);
	}
	ring_wait_destroy(&rings->wait);
	pthread_cond_destroy(&rings->changed);
	pthread_mutex_destroy(&rings->lock);
	free(rings);
}
