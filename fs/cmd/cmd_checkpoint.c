/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs checkpoint: asks the running daemon for one and waits until it is durable. */
#include "fs/cmd/cmd.h"

#include "common/diag.h"
#include "fs/admin/control.h"

#include <stdio.h>
#include <string.h>

#define CHECKPOINT_SECONDS 3600

int cmd_checkpoint(int argc, char **argv)
{
	json_t *request, *reply = NULL;
	const char *error;
	char why[512];
	int err;

	if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
		printf("usage: kvfs checkpoint WHERE\n\n"
		       "Makes a checkpoint of the volume that is served at WHERE (its directory or "
		       "its mount\npoint) and returns when it is durable.\n");
		return CMD_OK;
	}
	if (argc != 2 || argv[1][0] == '-') {
		diag_error("usage: kvfs checkpoint WHERE");
		return CMD_USAGE;
	}
	request = json_pack("{s:s}", "cmd", "checkpoint");
	err = control_call(argv[1], request, CHECKPOINT_SECONDS, &reply, NULL, why, sizeof(why));
	json_decref(request);
	if (err) {
		diag_error("%s", why);
		return CMD_FAILED;
	}
	error = json_string_value(json_object_get(reply, "error"));
	if (error)
		diag_error("%s", error);
	json_decref(reply);
	return error ? CMD_FAILED : CMD_OK;
}
