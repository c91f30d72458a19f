/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#define CLI_ROW(command) &command,
const cli_command *const cli_commands[] = {CLI_COMMAND_LIST(CLI_ROW) NULL};
#undef CLI_ROW
