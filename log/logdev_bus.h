/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_LOG_LOGDEV_BUS_H
#define KVFS_LOG_LOGDEV_BUS_H
/*
 * A store into a mapped log raises SIGBUS where the medium can't take it: no room left for the page
 * on a file system that copies on write, or in a file with holes; a file that somebody has cut off;
 * media that are worn out. So does a load of what a disk can't give back. The process is not to die
 * of that: the access is left where it was, and the log has failed as after any other write error,
 * or can't be read there.
 */

/* Before the first guard; any thread, any number of times. */
void logdev_bus_catch(void);

/*
 * Runs access(arg) and returns 0, or -EIO when it was left by a SIGBUS of this thread: whatever
 * locks it had taken stay taken. Not nested. SIGBUS must not be blocked. Other SIGBUSes end the
 * process as ever.
 */
int logdev_bus_guard(void (*access)(void *arg), void *arg);

#endif
