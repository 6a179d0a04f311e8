/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs mount, and mount.kvfs as mount(8) calls it for fstab. */
#include "fs/cmd/cmd.h"

#include "common/diag.h"
#include "fs/cmd/daemon.h"
#include "fs/cmd/serve.h"

#include <stdlib.h>
#include <string.h>

int cmd_mount(int argc, char **argv)
{
	static struct serve_args args;
	int code = serve_parse(OPTIONS_MOUNT, argc, argv, &args);

	return code >= 0 ? code : daemon_launch(args.foreground, serve_run, &args);
}

/* mount(8): mount.TYPE SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE] */
int cmd_mount_helper(int argc, char **argv)
{
	char **kept = calloc((size_t)argc + 1, sizeof(*kept));
	int count = 0, i, code;

	if (!kept)
		return CMD_FAILED;
	for (i = 0; i < argc; i++) {
		if (strcmp(argv[i], "-f") == 0) { /* mount --fake: do all but the mount */
			free(kept);
			return CMD_OK;
		}
		if (strcmp(argv[i], "-s") == 0 || strcmp(argv[i], "-n") == 0 ||
		    strcmp(argv[i], "-v") == 0)
			continue;
		if (strcmp(argv[i], "-t") == 0 || strcmp(argv[i], "-N") == 0) {
			i++;
			continue;
		}
		kept[count++] = argv[i];
	}
	code = cmd_mount(count, kept);
	free(kept);
	return code;
}
