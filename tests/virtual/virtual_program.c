/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program in virtual time: the linker (--wrap=main) makes this file
 * the start of a second program, of the same objects. VIRTUAL_SEED selects the
 * order of the threads (default 1). */
#include "virtual_time.h"

#include <stdlib.h>

int __real_main(int, char **);
int __wrap_main(int, char **);
int __wrap_main(int argc, char **argv)
{
    const char *seed = getenv("VIRTUAL_SEED");
    virtual_time_begin(seed ? strtoull(seed, NULL, 10) : 1);
    int status = __real_main(argc, argv);
    virtual_time_end();
    return status;
}
