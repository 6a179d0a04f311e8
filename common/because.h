/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_BECAUSE_H
#define KVFS_COMMON_BECAUSE_H
/* The sentence beside an error, for functions that return -errno and say why. Any thread. */

/* Returns err, with the sentence in *ret_why: the thread's own, good until its next one. An earlier
 * one may be among the arguments. */
__attribute__((format(printf, 3, 4))) int because(int err, const char **ret_why, const char *fmt,
						  ...);

#endif
