import java.nio.ByteBuffer;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.util.Callback;

/** Jetty, embedded. */
public class JettyServer extends Handler.Abstract {
    public static void main(String[] args) throws Exception {
        Server server = new Server(Integer.parseInt(args[0]));
        server.setHandler(new JettyServer());
        server.start();
        server.join();
    }

    @Override
    public boolean handle(Request request, Response response, Callback callback) throws InterruptedException {
        if (Request.getPathInContext(request).equals("/slow")) {
            Thread.sleep(300);
        }
        String body = "generation=" + System.getenv("SUPERVISORD_GENERATION") + "\n";
        response.write(true, ByteBuffer.wrap(body.getBytes()), callback);
        return true;
    }
}
