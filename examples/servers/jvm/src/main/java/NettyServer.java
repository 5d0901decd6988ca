import java.time.Duration;
import reactor.core.publisher.Mono;
import reactor.netty.http.server.HttpServer;

/** Reactor Netty, which serves Spring's WebFlux, with its own transport: an epoll set of its own. */
public class NettyServer {
    public static void main(String[] args) {
        Mono<String> body = Mono.just("generation=" + System.getenv("SUPERVISORD_GENERATION") + "\n");
        HttpServer.create().port(Integer.parseInt(args[0]))
                .route(routes -> routes
                        .get("/", (request, response) -> response.sendString(body))
                        .get("/slow", (request, response) -> response.sendString(body.delayElement(Duration.ofMillis(300)))))
                .bindNow().onDispose().block();
    }
}
