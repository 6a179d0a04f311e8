/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_JSON_TEXT_H
#define KVFS_COMMON_JSON_TEXT_H
/*
 * JSON strings of what need not be UTF-8: paths, and messages that name one. jansson refuses such
 * a text, and the whole object with it. Any thread.
 */
#include <jansson.h>

/* A new string; a byte that is no UTF-8 is written \xHH, four characters. For json_pack's "o".
 * NULL: out of memory. */
json_t *json_text(const char *text);

#endif
