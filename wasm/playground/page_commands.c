/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the commands of the playground. */
#include "commands.h"

extern const cli_command cmd_memory, cmd_read;

const cli_command *const cli_commands[] = {&cmd_init, &cmd_memory, &cmd_plan,
                                           &cmd_read, NULL};
