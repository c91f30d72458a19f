/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/launch_settings.h"

#include "base/fail.h"
#include "runtime/transport/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lhi_launch_parse_number(const char *name, uint64_t most, const char *ends,
                             uint64_t *out)
{
    const char *text = getenv(name);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (errno || n > most || (*end && (!ends || !strchr(ends, *end))))
        return false;
    *out = n;
    return true;
}

void lhi_launch_read_secret(lhi_launch_settings *s)
{
    const char *secret = getenv("LONGHAUL_SECRET");
    s->secret = secret ? secret : "";
}

lh_status lhi_launch_check_secret(const lhi_launch_settings *s,
                                  const char *launcher, lh_error *err)
{
    if (strlen(s->secret) >= LHI_SECRET_MIN_BYTES)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "ranks started by %s without MPI authenticate with "
                    "LONGHAUL_SECRET, at least %d characters, the same on all "
                    "hosts: before %s, export "
                    "LONGHAUL_SECRET=$(openssl rand -hex 32)",
                    launcher, LHI_SECRET_MIN_BYTES, launcher);
}

lh_status lhi_launch_read_port(lhi_launch_settings *s, uint16_t port,
                               lh_error *err)
{
    uint64_t given = port;
    if (getenv("LONGHAUL_PORT") &&
        (!lhi_launch_parse_number("LONGHAUL_PORT", 65535, NULL, &given) ||
         given == 0))
        return lhi_fail(err, LH_EINVAL,
                        "LONGHAUL_PORT: '%.20s' is not a port; use 1 to 65535",
                        getenv("LONGHAUL_PORT"));
    s->port = (uint16_t)given;
    return LH_OK;
}

lh_status lhi_launch_set_host(lhi_launch_settings *s, const char *name,
                              const char *host, lh_error *err)
{
    if (strlen(host) >= sizeof s->host)
        return lhi_fail(err, LH_EINVAL, "%s is too long", name);
    snprintf(s->host, sizeof s->host, "%s", host);
    return LH_OK;
}

/* Checks whether an address is ::1 or in 127.0.0.0/8. */
static bool is_loopback(const struct sockaddr_storage *a)
{
    unsigned char bytes[LHI_ADDRESS_BYTES];
    static const unsigned char one[16] = {[15] = 1};
    lhi_address_write((const struct sockaddr *)a, bytes);
    return memcmp(bytes, one, sizeof one) == 0 ||
           (bytes[10] == 0xff && bytes[11] == 0xff && bytes[12] == 127);
}

lh_status lhi_launch_check_first_host(const lhi_launch_settings *s,
                                      const char *name, lh_error *err)
{
    struct sockaddr_storage a;
    unsigned char literal[16];
    socklen_t size;
    if (inet_pton(AF_INET, s->host, literal) == 1 ||
        inet_pton(AF_INET6, s->host, literal) == 1)
        return LH_OK;
    lh_status status = lhi_address_resolve(s->host, s->port, &a, &size, err);
    if (status != LH_OK) {
        lhi_fail_add_context(err, "%s names none", name);
        return status;
    }
    if (is_loopback(&a))
        return lhi_fail(err, LH_EINVAL,
                        "rank 0's node %.100s resolves its own name to a "
                        "loopback address (/etc/hosts): set %s to an address "
                        "that other nodes reach",
                        s->host, name);
    return LH_OK;
}
