/* A resolver whose name server does not answer: preloaded, it takes a minute for each name. */
#include <netdb.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
    (void)node, (void)service, (void)hints, (void)result;
    sleep(60);
    return EAI_AGAIN;
}
