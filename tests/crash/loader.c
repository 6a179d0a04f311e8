/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loader run DIR JOURNAL SECONDS THREADS [CHANGES PID...]
 *                                          changes keys until the time is up or the filesystem
 *                                          dies; after CHANGES changes kills the PIDs with -9 while
 *                                          the others go on
 * loader settle DIR JOURNAL                makes of each change that was begun an acknowledged one
 * loader verify DIR JOURNAL                checks DIR against the journal; prints what is wrong,
 *                                          exits 1; 2 when the journal is empty: nothing would be
 *                                          checked
 *
 * run exits 1 when nothing was changed, or a thread met an error before anybody was to be killed.
 *
 * The journal, a file outside the filesystem under test, says for each key which version was begun
 * and which was acknowledged, so after a crash each acknowledged change must be there, and of the
 * last one begun either all or (where a program cannot expect better) what open(O_TRUNC) leaves.
 * Versions are truncate-and-write, write-and-rename, or delete; each thread also appends lines to a
 * file.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEYS 64          /* of each thread */
#define THREADS_MAX 8
#define VALUE_MAX (200 * 1024)
#define LINE_BYTES 32

struct entry {
	uint64_t begun, acked;
};

struct journal {
	uint64_t threads;
	struct entry keys[THREADS_MAX][KEYS];
	struct entry lines[THREADS_MAX];
};

struct worker {
	struct journal *j;
	unsigned index;
	int dirfd;
	uint64_t deadline_s, ops;
	int err;
	bool early; /* err came before the kill */
	char value[VALUE_MAX];
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x7FB5D329728EA185ULL;
	x ^= x >> 27;
	x *= 0x81DADEF4BC2DD44DULL;
	return x ^ (x >> 33);
}

/* What version v of a key is. */
enum how { HOW_TRUNCATE, HOW_RENAME, HOW_DELETE };

static enum how version_how(uint64_t v)
{
	if (v % 7 == 6)
		return HOW_DELETE;
	return v % 3 == 0 ? HOW_RENAME : HOW_TRUNCATE;
}

static size_t version_value(unsigned thread, unsigned key, uint64_t v, char *out)
{
	uint64_t x = mix(v * 1000003 + thread * 4099 + key + 1);
	size_t len = 1 + (x % 16 ? x % 3000 : x % (VALUE_MAX - 1));

	if (v == 0 || version_how(v) == HOW_DELETE)
		return 0;
	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = mix(x + i);

		memcpy(out + i, &word, len - i < 8 ? len - i : 8);
	}
	return len;
}

static int write_file(int dirfd, const char *name, int flags, const char *data, size_t len)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | flags, 0644), err = 0;

	if (fd < 0)
		return errno;
	while (len > 0 && !err) {
		ssize_t n = write(fd, data, len);

		if (n < 0)
			err = errno;
		else
			data += n, len -= (size_t)n;
	}
	if (close(fd) != 0 && !err)
		err = errno;
	return err;
}

static int change_key(struct worker *w, unsigned key)
{
	struct entry *e = &w->j->keys[w->index][key];
	uint64_t v = e->acked + 1;
	size_t len = version_value(w->index, key, v, w->value);
	char name[32], tmp[32];
	int err;

	snprintf(name, sizeof(name), "t%u-k%u", w->index, key);
	snprintf(tmp, sizeof(tmp), "t%u-tmp", w->index);
	e->begun = v;
	switch (version_how(v)) {
	case HOW_DELETE:
		err = unlinkat(w->dirfd, name, 0) ? errno : 0;
		break;
	case HOW_RENAME:
		err = write_file(w->dirfd, tmp, O_TRUNC, w->value, len);
		if (!err && renameat(w->dirfd, tmp, w->dirfd, name) != 0)
			err = errno;
		break;
	default:
		err = write_file(w->dirfd, name, O_TRUNC, w->value, len);
		break;
	}
	if (!err)
		e->acked = v;
	return err;
}

static void line_text(unsigned thread, uint64_t n, char out[LINE_BYTES + 1])
{
	snprintf(out, LINE_BYTES + 1, "thread %u line %017" PRIu64 "\n", thread, n);
}

static int append_line(struct worker *w)
{
	struct entry *e = &w->j->lines[w->index];
	char name[32], line[LINE_BYTES + 1];
	int err;

	snprintf(name, sizeof(name), "t%u-lines", w->index);
	line_text(w->index, e->acked, line);
	e->begun = e->acked + 1;
	err = write_file(w->dirfd, name, O_APPEND, line, strlen(line));
	if (!err)
		e->acked++;
	return err;
}

/* Who dies, and after how many changes of all threads; 0: nobody. */
static struct {
	uint64_t after;
	_Atomic uint64_t done;
	atomic_bool announced; /* from now on errors are to be expected */
	sem_t reached;
	unsigned count;
	pid_t pids[8];
} victim;

/* A thread of its own, so that every worker may be within a change when it strikes. */
static void *kill_victims(void *arg)
{
	while (sem_wait(&victim.reached) != 0)
		continue;
	for (unsigned i = 0; i < victim.count; i++)
		if (kill(victim.pids[i], SIGKILL) != 0)
			printf("cannot kill %d: %s\n", (int)victim.pids[i], strerror(errno));
	return arg;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t x = mix((uint64_t)time(NULL) * 31 + w->index);

	while (!w->err && (uint64_t)time(NULL) < w->deadline_s) {
		x = mix(x + 1);
		w->err = x % 8 == 0 ? append_line(w) : change_key(w, (unsigned)(x % KEYS));
		if (w->err) {
			w->early = victim.after && !victim.announced;
			break;
		}
		w->ops++;
		if (atomic_fetch_add(&victim.done, 1) + 1 == victim.after) {
			victim.announced = true;
			sem_post(&victim.reached);
		}
	}
	return NULL;
}

static struct journal *journal_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	struct journal *j;

	if (fd < 0 || ftruncate(fd, sizeof(*j)) != 0)
		return NULL;
	j = mmap(NULL, sizeof(*j), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return j == MAP_FAILED ? NULL : j;
}

/* A change that was begun but not acknowledged may be there or not: from now on what is there is
 * the truth. */
static int run(int dirfd, struct journal *j, unsigned seconds, unsigned threads)
{
	static struct worker workers[THREADS_MAX];
	pthread_t ids[THREADS_MAX], killer;
	uint64_t ops = 0;
	bool early = false;

	j->threads = threads;
	sem_init(&victim.reached, 0, 0);
	if (victim.after && pthread_create(&killer, NULL, kill_victims, NULL) != 0)
		return 2;
	for (unsigned i = 0; i < threads; i++) {
		workers[i].j = j;
		workers[i].index = i;
		workers[i].dirfd = dirfd;
		workers[i].deadline_s = (uint64_t)time(NULL) + seconds;
		if (pthread_create(&ids[i], NULL, work, &workers[i]) != 0)
			return 2;
	}
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		ops += workers[i].ops;
		early |= workers[i].early;
		if (workers[i].err)
			printf("thread %u ended%s: %s\n", i,
			       workers[i].early ? " before the kill" : "",
			       strerror(workers[i].err));
	}
	if (victim.after) {
		sem_post(&victim.reached); /* the time was up before: they die now */
		pthread_join(killer, NULL);
	}
	printf("%" PRIu64 " changes\n", ops);
	return ops == 0 || early ? 1 : 0;
}

static bool is_version(const char *got, ssize_t len, unsigned t, unsigned k, uint64_t v)
{
	static char want[VALUE_MAX];
	size_t want_len = version_value(t, k, v, want);

	if (v == 0 || version_how(v) == HOW_DELETE)
		return len < 0;
	return len == (ssize_t)want_len && memcmp(got, want, want_len) == 0;
}

/* Which of the possible versions the key is; moves the journal there. False: none. */
static bool verify_key(int dirfd, struct journal *j, unsigned t, unsigned k)
{
	static char got[VALUE_MAX + 1];
	struct entry *e = &j->keys[t][k];
	ssize_t len = -1;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "t%u-k%u", t, k);
	fd = openat(dirfd, name, O_RDONLY);
	if (fd >= 0) {
		len = read(fd, got, sizeof(got));
		close(fd);
	}
	if (is_version(got, len, t, k, e->acked))
		return true;
	if (e->begun > e->acked && is_version(got, len, t, k, e->begun))
		return true;
	/* the file made or truncated, the bytes not (or only the first MiB-sized pieces of them) */
	if (e->begun > e->acked && version_how(e->begun) == HOW_TRUNCATE && len >= 0) {
		static char want[VALUE_MAX];
		size_t want_len = version_value(t, k, e->begun, want);

		if ((size_t)len <= want_len && memcmp(got, want, (size_t)len) == 0)
			return true;
	}
	printf("%s: acknowledged version %" PRIu64 ", begun %" PRIu64
	       ": found %zd bytes that are neither\n",
	       name, e->acked, e->begun, len);
	return false;
}

static bool verify_lines(int dirfd, struct journal *j, unsigned t)
{
	struct entry *e = &j->lines[t];
	char name[32], line[LINE_BYTES + 1], got[LINE_BYTES + 1] = "";
	uint64_t n = 0;
	FILE *f;
	int fd;

	snprintf(name, sizeof(name), "t%u-lines", t);
	fd = openat(dirfd, name, O_RDONLY);
	f = fd >= 0 ? fdopen(fd, "r") : NULL;
	while (f && fgets(got, sizeof(got), f)) {
		line_text(t, n, line);
		if (strcmp(got, line) != 0)
			break;
		got[0] = '\0';
		n++;
	}
	if (f)
		fclose(f);
	if (n >= e->acked && n <= e->begun && got[0] == '\0')
		return true;
	printf("%s: %" PRIu64 " good lines, %" PRIu64 " acknowledged, %" PRIu64 " begun\n", name, n,
	       e->acked, e->begun);
	return false;
}

/* Nothing was ever begun. */
static bool journal_is_empty(const struct journal *j)
{
	for (unsigned t = 0; t < j->threads && t < THREADS_MAX; t++) {
		if (j->lines[t].begun)
			return false;
		for (unsigned k = 0; k < KEYS; k++)
			if (j->keys[t][k].begun)
				return false;
	}
	return true;
}

static int verify(int dirfd, struct journal *j)
{
	unsigned bad = 0, checked = 0;

	if (journal_is_empty(j)) {
		printf("the journal is empty: there is nothing to check\n");
		return 2;
	}
	for (unsigned t = 0; t < j->threads; t++) {
		for (unsigned k = 0; k < KEYS; k++, checked++)
			bad += !verify_key(dirfd, j, t, k);
		bad += !verify_lines(dirfd, j, t);
	}
	printf("%u keys checked, %u wrong\n", checked, bad);
	return bad ? 1 : 0;
}

/* Before the next run: what is there becomes what was acknowledged. */
static int settle(int dirfd, struct journal *j)
{
	static char value[VALUE_MAX];
	char name[32], line[LINE_BYTES + 1];

	for (unsigned t = 0; t < j->threads; t++) {
		for (unsigned k = 0; k < KEYS; k++) {
			struct entry *e = &j->keys[t][k];
			size_t len = version_value(t, k, e->begun, value);

			if (e->begun == e->acked)
				continue;
			snprintf(name, sizeof(name), "t%u-k%u", t, k);
			unlinkat(dirfd, name, 0);
			if (version_how(e->begun) != HOW_DELETE &&
			    write_file(dirfd, name, O_EXCL, value, len))
				return 1;
			e->acked = e->begun;
		}
		snprintf(name, sizeof(name), "t%u-lines", t);
		unlinkat(dirfd, name, 0);
		for (uint64_t n = 0; n < j->lines[t].begun; n++) {
			line_text(t, n, line);
			if (n >= 200)
				break;
			if (write_file(dirfd, name, O_APPEND, line, strlen(line)))
				return 1;
		}
		if (j->lines[t].begun > 200)
			j->lines[t].begun = 200;
		j->lines[t].acked = j->lines[t].begun;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct journal *j;
	int dirfd;

	if (argc < 4) {
		fprintf(stderr,
			"usage: loader run DIR JOURNAL SECONDS THREADS [CHANGES PID...] | verify "
			"DIR JOURNAL"
			" | settle DIR JOURNAL\n");
		return 2;
	}
	dirfd = open(argv[2], O_RDONLY | O_DIRECTORY);
	j = journal_open(argv[3]);
	if (dirfd < 0 || !j) {
		fprintf(stderr, "loader: %s or %s: %s\n", argv[2], argv[3], strerror(errno));
		return 2;
	}
	if (strcmp(argv[1], "run") == 0 && argc >= 6 && argc < 7 + 8) {
		unsigned threads = (unsigned)strtoul(argv[5], NULL, 10);

		victim.after = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;
		for (int i = 7; i < argc; i++)
			victim.pids[victim.count++] = (pid_t)strtol(argv[i], NULL, 10);
		return threads >= 1 && threads <= THREADS_MAX
			       ? run(dirfd, j, (unsigned)strtoul(argv[4], NULL, 10), threads)
			       : 2;
	}
	if (strcmp(argv[1], "verify") == 0)
		return verify(dirfd, j);
	if (strcmp(argv[1], "settle") == 0)
		return settle(dirfd, j);
	return 2;
}
