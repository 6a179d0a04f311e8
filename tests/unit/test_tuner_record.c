/* SPDX-License-Identifier: Apache-2.0 */
/* A recording's file: all is written, and a file system that is full or hangs holds nobody up. */
#include "tuner/trace_writer.h"

#include "common/clock.h"
#include "tests/unit/unit_main.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_NS (5 * NSEC_PER_SEC)
#define SHORT_NS (50 * NSEC_PER_MSEC)
#define LINE_BYTES 1000

static char line[LINE_BYTES + 1];
static int given_fd;
static sem_t may_open, opened;

static void setup(void)
{
	memset(line, 'x', LINE_BYTES);
	line[LINE_BYTES - 1] = '\n';
}

static int open_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

static int open_full(const char *path)
{
	(void)path;
	return open("/dev/full", O_WRONLY | O_CLOEXEC);
}

static int open_given(const char *path)
{
	(void)path;
	return given_fd;
}

static int open_late(const char *path)
{
	int fd;

	while (sem_wait(&may_open) != 0)
		continue;
	fd = open_full(path);
	sem_post(&opened);
	return fd;
}

static bool put(FILE *f)
{
	return fwrite(line, 1, LINE_BYTES, f) == LINE_BYTES && fflush(f) == 0;
}

START_TEST(all_is_written)
{
	char dir[] = "/tmp/kvfs-test-XXXXXX", path[64], back[LINE_BYTES];
	FILE *f = NULL;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/trace", dir);
	ck_assert_int_eq(trace_writer_open(open_file, path, 4U << 20, WAIT_NS, &f), 0);
	for (unsigned i = 0; i < 1000; i++)
		ck_assert(put(f));
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(trace_writer_open(open_file, path, 1, WAIT_NS, &f), -EEXIST);
	f = fopen(path, "r");
	for (unsigned i = 0; i < 1000; i++) {
		ck_assert_uint_eq(fread(back, 1, LINE_BYTES, f), LINE_BYTES);
		ck_assert_int_eq(memcmp(back, line, LINE_BYTES), 0);
	}
	ck_assert_int_eq(fgetc(f), EOF);
	fclose(f);
	unlink(path);
	rmdir(dir);
}
END_TEST

/* The disk's error comes with a later line, or at the end. */
START_TEST(a_full_disk_ends_it)
{
	uint64_t end_ns = clock_mono_ns() + WAIT_NS;
	FILE *f = NULL;

	ck_assert_int_eq(trace_writer_open(open_full, "", 4U << 20, WAIT_NS, &f), 0);
	while (put(f))
		ck_assert_uint_lt(clock_mono_ns(), end_ns);
	ck_assert_int_ne(fclose(f), 0);
	ck_assert_int_eq(trace_writer_open(open_full, "", 4U << 20, WAIT_NS, &f), 0);
	(void)put(f);
	ck_assert_int_ne(fclose(f), 0);
}
END_TEST

/* Nobody reads the pipe: its write hangs. Lines go on until the queue is full, and then fail at
 * once; so does the end. With the queue not full the end waits as long as it was told. */
START_TEST(a_file_that_hangs)
{
	size_t queue = _i ? 4U << 20 : 64U << 10;
	uint64_t began_ns = clock_mono_ns();
	FILE *f = NULL;
	unsigned i;
	int fd[2];

	ck_assert_int_eq(pipe2(fd, O_CLOEXEC), 0);
	given_fd = fd[1];
	ck_assert_int_eq(trace_writer_open(open_given, "", queue, SHORT_NS, &f), 0);
	for (i = 0; i < 1000; i++)
		if (!put(f))
			break;
	ck_assert(_i ? i == 1000 : i < 1000);
	ck_assert_int_ne(fclose(f), 0);
	ck_assert_uint_lt(clock_mono_ns() - began_ns, WAIT_NS);
	close(fd[0]); /* EPIPE lets kv-trace end */
}
END_TEST

START_TEST(an_open_that_hangs)
{
	FILE *f = NULL;

	sem_init(&may_open, 0, 0);
	sem_init(&opened, 0, 0);
	ck_assert_int_eq(trace_writer_open(open_late, "", 4096, SHORT_NS, &f), -ETIMEDOUT);
	ck_assert_ptr_null(f);
	sem_post(&may_open); /* what comes then is closed, and all freed */
	while (sem_wait(&opened) != 0)
		continue;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner record");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, all_is_written);
	tcase_add_test(t, a_full_disk_ends_it);
	tcase_add_loop_test(t, a_file_that_hangs, 0, 2);
	tcase_add_test(t, an_open_that_hangs);
	suite_add_tcase(s, t);
	return unit_run(s);
}
